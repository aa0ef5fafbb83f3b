/* turn.cpp - a user of the library in C++, out of the tree: a callback without captures, a
 * unique_ptr that releases. */
#include <cstdio>
#include <holdfast.h>
#include <memory>

int main()
{
    hf_client *client = nullptr;
    if (hf_open(nullptr, nullptr, &client) != HF_OK) {
        std::fprintf(stderr, "turn: %s\n", hf_error_text());
        return 1;
    }
    {
        hf_request want{};
        want.size = sizeof want;
        want.name = "consumer";
        want.kind = HF_SEMAPHORE;
        want.capacity = 2;
        hf_lease *first = nullptr, *second = nullptr;
        if (hf_acquire(client, &want, &first) != HF_OK ||
            hf_acquire(client, &want, &second) != HF_OK)
            return 2;
        std::unique_ptr<hf_lease, decltype(&hf_lease_free)> one(first, hf_lease_free),
            two(second, hf_lease_free);
        if (hf_lease_token(second) <= hf_lease_token(first))
            return 3;
        int rows = 0;
        auto count = [](void *arg, const hf_row *) { ++*static_cast<int *>(arg); };
        if (hf_show(client, "consumer", count, &rows) != HF_OK || rows != 2)
            return 4;
    }
    std::printf("version %s: my turn is over\n", hf_version());
    return hf_close(client, 1000) == HF_OK ? 0 : 5;
}
