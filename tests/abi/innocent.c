/* SPDX-License-Identifier: Apache-2.0 */
/* A shared object without NCCL in it. */
int innocent(void);
int innocent(void)
{
    return 0;
}
