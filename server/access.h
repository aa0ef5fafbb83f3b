/* access.h - who may do what: bearer tokens, stored hashed, with rights and a scope. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum right { RIGHT_READ = 1, RIGHT_ACQUIRE = 2, RIGHT_BREAK = 4, RIGHT_ALL = 7 };

struct right_holder {
    char name[64];        /* for logs */
    char prefix[513];     /* of the names that it may touch */
    unsigned rights;      /* enum right */
    unsigned char id[32]; /* the hash of its token */
};

struct access;

/* Reads a token file; *access is NULL after a message. A line is "sha256:HEX RIGHTS PREFIX NAME", where RIGHTS are
 * words with commas, and PREFIX * stands for all names. */
bool access_open(const char *path, struct access **access);
void access_free(struct access *access);

/* The holder of a token; NULL: nobody. Takes equally long for all of them. */
const struct right_holder *access_find(const struct access *access, const char *token, size_t len);

bool access_allows(const struct right_holder *holder, unsigned right, const char *name);
