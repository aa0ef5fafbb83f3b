/* turn.c - a user of the library in C, out of the tree: takes a lock, is refused a second time,
 * gives it back. */
#include <holdfast.h>
#include <stdio.h>

int main(void)
{
    struct hf_request want = {.size = sizeof want, .name = "consumer"};
    hf_client *client;
    hf_lease *lease, *second;
    if (hf_open(NULL, NULL, &client) != HF_OK || hf_acquire(client, &want, &lease) != HF_OK) {
        fprintf(stderr, "turn: %s\n", hf_error_text());
        return 1;
    }
    if (hf_acquire(client, &want, &second) != HF_BUSY || hf_lease_token(lease) == 0)
        return 2;
    if (hf_release(lease) != HF_OK)
        return 3;
    hf_lease_free(lease);
    printf("version %s: my turn is over\n", hf_version());
    return hf_close(client, 1000) == HF_OK ? 0 : 4;
}
