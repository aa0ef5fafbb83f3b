/* secret_client.c - opens a client with certificates and a password that are texts, not files, and
 * takes a lock; redis_tls.sh runs it on a real server.
 *
 *     secret_client URL [ca=FILE] [cert=FILE] [key=FILE] [password=TEXT]
 *
 * Reads the files itself and prints the words of what failed; the exit code is that of the status.
 */
#include "holdfast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *contents_of(const char *path)
{
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "r");
    if (!text || !file || fread(text, 1, (1 << 16) - 1, file) == 0) {
        perror(path);
        exit(99);
    }
    fclose(file);
    return text;
}

static void read_argument(char *argument, struct hf_client_options *options)
{
    char *value = strchr(argument, '=');
    if (!value) {
        fprintf(stderr, "%s: NAME=VALUE is missing\n", argument);
        exit(99);
    }
    *value++ = 0;

    if (strcmp(argument, "ca") == 0)
        options->ca_pem = contents_of(value);
    else if (strcmp(argument, "cert") == 0)
        options->cert_pem = contents_of(value);
    else if (strcmp(argument, "key") == 0)
        options->key_pem = contents_of(value);
    else
        options->password = value;
}

int main(int argc, char **argv)
{
    struct hf_client_options options = {.size = sizeof options};
    struct hf_request want = {.size = sizeof want, .name = "secret", .wait_ms = 2000};
    hf_client *client;
    hf_lease *lease;
    for (int i = 2; i < argc; i++)
        read_argument(argv[i], &options);

    hf_status status = hf_open(argv[1], &options, &client);
    if (status == HF_OK)
        status = hf_acquire(client, &want, &lease);
    if (status != HF_OK)
        printf("%s\n", hf_error_text());
    hf_close(client, 1000);
    free((char *)(uintptr_t)options.ca_pem);
    free((char *)(uintptr_t)options.cert_pem);
    free((char *)(uintptr_t)options.key_pem);
    return hf_status_exit_code(status);
}
