/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IPS_TESTS_LOADER_USER_H
#define IPS_TESTS_LOADER_USER_H

__attribute__((visibility("default"))) int user_run(void);

#endif
