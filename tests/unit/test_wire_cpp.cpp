/* SPDX-License-Identifier: Apache-2.0 */
/* The wire layout as C++ sees it: see test_wire.c. */
#include "tests/unit/test_wire.h"

struct layout {
    const char *what;
    size_t bytes;
};

static const layout layout_cpp[] = {
#include "tests/unit/wire_list.h"
};

extern "C" const layout *wire_layout_cpp(size_t *ret_count);
const layout *wire_layout_cpp(size_t *ret_count)
{
    *ret_count = sizeof layout_cpp / sizeof layout_cpp[0];
    return layout_cpp;
}
