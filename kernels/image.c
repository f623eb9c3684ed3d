/* SPDX-License-Identifier: Apache-2.0 */
/* Embeds the fat binary named by IPS_KERNEL_FATBIN, if there is one. */
#include "kernels/image.h"

#ifdef IPS_KERNEL_FATBIN
#include "kernels/ips-kernels.fatbin.h" /* .incbin is no dependency; this is one */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".global ips_kernel_image\n"
        ".hidden ips_kernel_image\n"
        "ips_kernel_image:\n"
        ".incbin \"" IPS_KERNEL_FATBIN "\"\n"
        "ips_kernel_image_end:\n"
        ".balign 8\n"
        ".global ips_kernel_image_bytes\n"
        ".hidden ips_kernel_image_bytes\n"
        "ips_kernel_image_bytes:\n"
        ".quad ips_kernel_image_end - ips_kernel_image\n"
        ".popsection\n");
#else
const unsigned char ips_kernel_image[8] = {0};
const size_t ips_kernel_image_bytes = 0;
#endif
