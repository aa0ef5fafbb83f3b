/* turn.c - the smallest complete user of the library: it acquires, works and releases. */
#include <holdfast.h>
#include <inttypes.h>
#include <stdio.h>

int main(void)
{
    struct hf_request want = {
        .size = sizeof want, .name = "printer", .wait_ms = 10000, .flags = HF_AUTO_RENEW};
    hf_client *client;
    hf_lease *lease;
    if (hf_open(NULL, NULL, &client) != HF_OK) {
        fprintf(stderr, "turn: %s\n", hf_error_text());
        return 1;
    }
    hf_status status = hf_acquire(client, &want, &lease);
    if (status == HF_OK) {
        printf("my turn, token %" PRIu64 ", good for %" PRId64 " ms\n", hf_lease_token(lease),
               hf_lease_left_ms(lease));
        status = hf_release(lease);
        hf_lease_free(lease);
    }
    if (status != HF_OK)
        fprintf(stderr, "turn: %s\n", hf_error_text());
    hf_close(client, 1000);
    return hf_status_exit_code(status);
}
