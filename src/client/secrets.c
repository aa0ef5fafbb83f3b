/* secrets.c - certificates, keys and passwords that a caller gave as texts. Each becomes a file in
 * memory that only this process can open, so engines and the libraries below them read files as
 * they always do. */
#include "client.h"

#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the index of a setting, or -1 if no engine of this build has it. */
static int index_of(const struct settings *settings, const char *name)
{
    const struct settings_table *table = settings->table;
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->row[i].name, name) == 0)
            return (int)table->from[i]->index;
    return -1;
}

static bool write_all(int fd, const char *text)
{
    for (size_t left = strlen(text); left;) {
        ssize_t written = write(fd, text, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        text += written;
        left -= (size_t)written;
    }
    return true;
}

/* Returns a file with that text; -1: errno says why. Its mode is strict, because libraries
 * refuse keys that others may read. */
static int make_file(const char *text)
{
    int fd = memfd_create("holdfast", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fchmod(fd, S_IRUSR | S_IWUSR) == 0 && write_all(fd, text))
        return fd;

    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static hf_status keep(struct settings *settings, const char *option, const char *setting,
                      const char *text, int *kept)
{
    assert(text && !*kept);

    int index = index_of(settings, setting);
    if (index < 0)
        return error_set(HF_UNSUPPORTED, "%s: no engine of this library uses it", option);
    if (strcmp(settings->source[index], "default") != 0)
        return error_set(HF_CONFIG, "%s: the setting %s is given as well (%s)", option, setting,
                         settings->source[index]);
    if (!*text)
        return error_set(HF_CONFIG, "%s: is empty", option);

    int fd = make_file(text);
    if (fd < 0)
        return error_set(HF_NO_MEMORY, "%s: cannot be kept: %s", option, strerror(errno));
    *kept = fd + 1;
    settings->value[index] =
        snprintf(settings->text[index], sizeof settings->text[index], "/proc/self/fd/%d", fd);
    settings->source[index] = "options";
    return HF_OK;
}

hf_status secrets_keep(struct secrets *secrets, struct settings *settings,
                       const struct hf_client_options *options)
{
    const struct {
        const char *option, *setting, *text;
    } all[SECRETS] = {
        {"ca_pem", "ca", options->ca_pem},
        {"cert_pem", "cert", options->cert_pem},
        {"key_pem", "key", options->key_pem},
        {"password", "password_file", options->password},
    };
    hf_status status = HF_OK;

    if (options->password && strpbrk(options->password, "\r\n"))
        return error_set(HF_CONFIG, "password: has more than one line");
    for (size_t i = 0; i < SECRETS && status == HF_OK; i++)
        if (all[i].text)
            status = keep(settings, all[i].option, all[i].setting, all[i].text, &secrets->fd[i]);
    return status;
}

void secrets_drop(struct secrets *secrets)
{
    for (size_t i = 0; i < SECRETS; i++) {
        if (secrets->fd[i])
            close(secrets->fd[i] - 1);
        secrets->fd[i] = 0;
    }
}
