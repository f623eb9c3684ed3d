/* SPDX-License-Identifier: Apache-2.0 */
/* A library that must not be loaded: leaves a file "sprung" in the current directory. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void spring(void)
{
    close(open("sprung", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}
