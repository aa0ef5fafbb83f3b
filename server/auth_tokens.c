/* auth_tokens.c - reads token files and compares tokens. */
#include "auth_tokens.h"
#include "service_log.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES 1024

struct auth_tokens {
    struct caller *all;
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

static bool read_caller(char *line, struct caller *holder)
{
    char *rest = NULL;
    char *hash = strtok_r(line, " \t\r\n", &rest), *rights = strtok_r(NULL, " \t\r\n", &rest);
    char *prefix = strtok_r(NULL, " \t\r\n", &rest), *name = strtok_r(NULL, " \t\r\n", &rest);

    *holder = (struct caller){0};
    bool is_malformed = !name || strncmp(hash, "sha256:", 7) != 0 ||
                        !read_hash(hash + 7, holder->id) || !read_rights(rights, &holder->rights);
    if (is_malformed)
        return false;

    if (strcmp(prefix, "*") == 0)
        prefix = "";
    if (strlen(prefix) >= sizeof holder->prefix || strlen(name) >= sizeof holder->name)
        return false;

    strcpy(holder->prefix, prefix);
    strcpy(holder->name, name);

    return true;
}

static bool add_line(struct auth_tokens *access, char *line, const char *path, int number)
{
    line += strspn(line, " \t\r\n");
    if (*line == 0 || *line == '#')
        return true;

    struct caller *all = reallocarray(access->all, access->count + 1, sizeof *all);
    if (!all)
        return false;

    access->all = all;
    if (!read_caller(line, &all[access->count])) {
        log_complain("%s: line %d is not \"sha256:HEX RIGHTS PREFIX NAME\"", path, number);
        return false;
    }

    access->count++;

    return true;
}

/* Returns true if nobody else can have written or chosen the opened file. Symbolic links are
 * followed, because orchestrators mount secrets that way: the owners of the link and of the file
 * behind it count. */
static bool is_private(FILE *file, const char *path)
{
    struct stat info, link;

    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
        log_complain("the token file \"%s\" is not a regular file", path);
        return false;
    }
    if (info.st_mode & 022) {
        log_complain("the token file \"%s\" can be written by group or others", path);
        return false;
    }
    if (info.st_uid != 0 && info.st_uid != geteuid()) {
        log_complain("the token file \"%s\" belongs to another user", path);
        return false;
    }
    if (lstat(path, &link) != 0 || (link.st_uid != 0 && link.st_uid != geteuid())) {
        log_complain("the token file \"%s\" is a link of another user", path);
        return false;
    }
    return true;
}

bool auth_open(const char *path, struct auth_tokens **out)
{
    char line[LINE_BYTES];
    *out = NULL;
    struct auth_tokens *access = calloc(1, sizeof *access);
    /* O_NONBLOCK: without it, a FIFO that another user put there would block the start for ever. */
    int fd = access ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;

    if (!file) {
        log_complain("cannot open the token file \"%s\": %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        free(access);
        return false;
    }

    bool fine = is_private(file, path);
    for (int number = 1; fine && fgets(line, sizeof line, file); number++)
        fine = add_line(access, line, path, number);
    fclose(file);
    if (fine && access->count == 0) {
        log_complain("the token file \"%s\" contains no token", path);
        fine = false;
    }
    if (fine)
        *out = access;
    else
        auth_free(access);
    return fine;
}

void auth_free(struct auth_tokens *access)
{
    if (!access)
        return;
    free(access->all);
    free(access);
}

const struct caller *auth_find(const struct auth_tokens *access, const char *token, size_t len)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    const struct caller *found = NULL;

    SHA256((const unsigned char *)token, len, hash);
    for (size_t i = 0; i < access->count; i++)
        if (CRYPTO_memcmp(access->all[i].id, hash, sizeof hash) == 0)
            found = &access->all[i];
    return found;
}

bool auth_allows(const struct caller *holder, unsigned right, const char *name)
{
    if (!holder)
        return true;
    if ((holder->rights & right) != right)
        return false;
    return !name || strncmp(name, holder->prefix, strlen(holder->prefix)) == 0;
}
