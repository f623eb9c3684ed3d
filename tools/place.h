/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are: libipcshim.so and the stand-in for CUDA and NCCL, found relative to
 * this executable; and which kind of device this machine has. Sets up the environment
 * under which a program meets the shim. */
#ifndef IPS_TOOLS_PLACE_H
#define IPS_TOOLS_PLACE_H

enum place_device { PLACE_AUTO, PLACE_GPU, PLACE_SIM };

/* Absolute paths, static storage; NULL after printing where was looked. */
const char *place_shim(void);
const char *place_simgpu(void);

/* ipcshim-plot, beside this executable. */
const char *place_plot(void);

/* "auto", "gpu" or "sim"; -1 for anything else. */
int place_parse_device(const char *text);

/* Decides PLACE_AUTO: PLACE_GPU when libcuda.so.1 shows a device, else PLACE_SIM.
 * PLACE_SIM puts the stand-in first on LD_LIBRARY_PATH, with at least `devices` devices,
 * and says so on stderr when nobody asked for it. -1 after printing. */
int place_choose_device(int wanted, unsigned devices);

/* LD_PRELOAD (the shim first, the rest kept) and the path variables of vLLM and SGLang.
 */
int place_preload(void);

#endif
