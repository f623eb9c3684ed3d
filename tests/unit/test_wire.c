/* SPDX-License-Identifier: Apache-2.0 */
/* The wire layout as C sees it is the one that C++, and with it device code, sees. */
#include "tests/unit/test_wire.h"

#include "tests/unit/check.h"

struct layout {
    const char *what;
    size_t bytes;
};
const struct layout *wire_layout_cpp(size_t *ret_count);

static const struct layout layout_c[] = {
#include "tests/unit/wire_list.h"
};

int main(void)
{
    size_t count, own = sizeof layout_c / sizeof layout_c[0];
    const struct layout *cpp = wire_layout_cpp(&count);
    CHECK(count == own);
    for (size_t i = 0; i < own && i < count; i++)
        CHECK(layout_c[i].bytes == cpp[i].bytes, "%s: C %zu, C++ %zu", layout_c[i].what,
              layout_c[i].bytes, cpp[i].bytes);
    CHECK(IPS_MAILBOX_BYTES(1) >= sizeof(struct ips_mailbox) + sizeof(struct ips_channel));
    CHECK(IPS_HEAD_BYTES + IPS_MAILBOX_BYTES(IPS_MAX_CHANNELS) <= 16u << 20);
    return check_result();
}
