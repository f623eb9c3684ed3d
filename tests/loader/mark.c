/* SPDX-License-Identifier: Apache-2.0 */
/* What tells an NCCL whose names are hidden: the parameters it reads. */
const char *fake_parameter(void);
const char *fake_parameter(void)
{
    return "NCCL_LL128_BUFFSIZE";
}
