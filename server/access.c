/* access.c - reads token files and compares tokens. */
#include "access.h"
#include "log.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE_BYTES 1024

struct access {
    struct right_holder *all;
    size_t count;
};

static bool read_hash(const char *text, unsigned char hash[32])
{
    if (strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64)
        return false;
    for (size_t i = 0; i < 32; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        hash[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return true;
}

static bool read_rights(char *text, unsigned *rights)
{
    char *rest = NULL;
    *rights = 0;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (strcmp(word, "read") == 0)
            *rights |= RIGHT_READ;
        else if (strcmp(word, "acquire") == 0)
            *rights |= RIGHT_ACQUIRE;
        else if (strcmp(word, "break") == 0)
            *rights |= RIGHT_BREAK;
        else
            return false;
    }
    return *rights != 0;
}

static bool read_holder(char *line, struct right_holder *holder)
{
    char *rest = NULL;
    char *hash = strtok_r(line, " \t\r\n", &rest), *rights = strtok_r(NULL, " \t\r\n", &rest);
    char *prefix = strtok_r(NULL, " \t\r\n", &rest), *name = strtok_r(NULL, " \t\r\n", &rest);
    *holder = (struct right_holder){0};
    if (!name || strncmp(hash, "sha256:", 7) != 0 || !read_hash(hash + 7, holder->id) ||
        !read_rights(rights, &holder->rights))
        return false;
    if (strcmp(prefix, "*") == 0)
        prefix = "";
    if (strlen(prefix) >= sizeof holder->prefix || strlen(name) >= sizeof holder->name)
        return false;
    strcpy(holder->prefix, prefix);
    strcpy(holder->name, name);
    return true;
}

static bool add_line(struct access *access, char *line, const char *path, int number)
{
    line += strspn(line, " \t\r\n");
    if (*line == 0 || *line == '#')
        return true;
    struct right_holder *all = reallocarray(access->all, access->count + 1, sizeof *all);
    if (!all)
        return false;
    access->all = all;
    if (!read_holder(line, &all[access->count])) {
        log_complain("%s: line %d is not \"sha256:HEX RIGHTS PREFIX NAME\"", path, number);
        return false;
    }
    access->count++;
    return true;
}

static bool is_private(FILE *file, const char *path)
{
    struct stat info;
    if (fstat(fileno(file), &info) == 0 && !(info.st_mode & 022))
        return true;
    log_complain("the token file \"%s\" can be written by group or others", path);
    return false;
}

bool access_open(const char *path, struct access **out)
{
    char line[LINE_BYTES];
    *out = NULL;
    struct access *access = calloc(1, sizeof *access);
    FILE *file = access ? fopen(path, "re") : NULL;
    if (!file) {
        log_complain("cannot open the token file \"%s\": %s", path, strerror(errno));
        free(access);
        return false;
    }
    bool fine = is_private(file, path);
    for (int number = 1; fine && fgets(line, sizeof line, file); number++)
        fine = add_line(access, line, path, number);
    fclose(file);
    if (fine && access->count == 0) {
        log_complain("the token file \"%s\" has no token", path);
        fine = false;
    }
    if (fine)
        *out = access;
    else
        access_free(access);
    return fine;
}

void access_free(struct access *access)
{
    if (!access)
        return;
    free(access->all);
    free(access);
}

const struct right_holder *access_find(const struct access *access, const char *token, size_t len)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    const struct right_holder *found = NULL;
    SHA256((const unsigned char *)token, len, hash);
    for (size_t i = 0; i < access->count; i++)
        if (CRYPTO_memcmp(access->all[i].id, hash, sizeof hash) == 0)
            found = &access->all[i];
    return found;
}

bool access_allows(const struct right_holder *holder, unsigned right, const char *name)
{
    if (!holder)
        return true;
    if ((holder->rights & right) != right)
        return false;
    return !name || strncmp(name, holder->prefix, strlen(holder->prefix)) == 0;
}
