/* auth_tokens.h - who may do what: bearer tokens, stored as hashes, with rights and a scope. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum right { RIGHT_READ = 1, RIGHT_ACQUIRE = 2, RIGHT_BREAK = 4, RIGHT_ALL = 7 };

struct caller {
    char name[64];        /* name of the caller, for logs and holders */
    char prefix[513];     /* prefix of the names that it may use */
    unsigned rights;      /* enum right */
    unsigned char id[32]; /* SHA-256 of the token */
};

struct auth_tokens;

/* Reads a token file. Returns false after a message. A line is "sha256:HEX RIGHTS PREFIX NAME":
 * RIGHTS are words separated by commas, and PREFIX * means all names. */
bool auth_open(const char *path, struct auth_tokens **access);
void auth_free(struct auth_tokens *access);

/* Returns the caller with this token, or NULL. Takes the same time for every token. */
const struct caller *auth_find(const struct auth_tokens *access, const char *token, size_t len);

bool auth_allows(const struct caller *holder, unsigned right, const char *name);
