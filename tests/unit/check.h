/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest test framework: CHECK counts, a failure is printed and the test goes on,
 * and CHECK_RESULT() is main's exit status. A program that checked nothing fails. */
#ifndef IPS_TESTS_CHECK_H
#define IPS_TESTS_CHECK_H

#include <stdio.h>

static unsigned check_count, check_failures;

#define CHECK(condition, ...)                                    \
    do {                                                         \
        check_count++;                                           \
        if (!(condition)) {                                      \
            check_failures++;                                    \
            printf("%s:%d: %s", __FILE__, __LINE__, #condition); \
            printf(": " __VA_ARGS__);                            \
            printf("\n");                                        \
        }                                                        \
    } while (0)

static inline int check_result(void)
{
    printf("%u checks, %u failed\n", check_count, check_failures);
    return check_failures || !check_count ? 1 : 0;
}

#endif
