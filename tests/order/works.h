/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IPS_TESTS_WORKS_H
#define IPS_TESTS_WORKS_H

#include "tests/order/program.h"

struct work work_random(uint64_t *state, unsigned nranks, int only_nccl);

#endif
