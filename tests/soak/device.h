/* SPDX-License-Identifier: Apache-2.0 */
/* Where a soak's works run: on a GPU, or on the CPU stand-in. */
#ifndef IPS_TESTS_SOAK_DEVICE_H
#define IPS_TESTS_SOAK_DEVICE_H

#include "tests/soak/works.h"
#include "tools/device.h"

struct soak_device {
    struct device device;
    int simulated;
    gpu_module module; /* not on the stand-in */
    gpu_function kernel[SOAK_WORKS];
    int (*cuLaunchHostFunc)(gpu_stream stream, void (*function)(void *), void *data);
};

/* 0, or not 0 after printing. */
int soak_device_open(struct soak_device *device, unsigned rank);
void soak_device_close(struct soak_device *device);

/* Enqueues one work. *call must live as long as the stream, or the graph it is captured
 * into, may run it. */
int soak_enqueue(struct soak_device *device, enum soak_work work, struct soak_call *call,
                 gpu_stream stream);

#endif
