/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is linked with NCCL. An argument: seconds to stay, after a line that it
 * is ready. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/loader/user.h"

int main(int argc, char **argv)
{
    int status = user_run();
    if (argc > 1) {
        puts("ready");
        fflush(stdout);
        sleep((unsigned)atoi(argv[1]));
    }
    return status;
}
