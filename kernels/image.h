/* SPDX-License-Identifier: Apache-2.0 */
/* The device code for real GPUs, embedded: one fat binary for cuModuleLoadData. Empty (0
 * bytes) in a build without nvcc. */
#ifndef IPS_KERNELS_IMAGE_H
#define IPS_KERNELS_IMAGE_H

#include <stddef.h>

extern const unsigned char ips_kernel_image[];
extern const size_t ips_kernel_image_bytes;

#endif
