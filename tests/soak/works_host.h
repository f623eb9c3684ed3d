/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IPS_TESTS_SOAK_WORKS_HOST_H
#define IPS_TESTS_SOAK_WORKS_HOST_H

#include "tests/soak/works.h"

extern void (*const soak_host_works[SOAK_WORKS])(void *call);

#endif
