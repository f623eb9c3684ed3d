/* SPDX-License-Identifier: Apache-2.0 */
/* libipcshim-dlsym.so, preloaded behind the shim, for programs that look NCCL up by
 * dlsym(handle). Its dlsym answers as the C library's does, for everybody, but with
 * IPCSHIM_HOOK_DLSYM=1 a name that begins with "nccl", that the shim exports and that the
 * asked library itself has is answered by the shim's function. Thread-safe; no state but
 * the address of the real dlsym. */
#ifndef IPS_SHIM_HOOK_DLSYM_H
#define IPS_SHIM_HOOK_DLSYM_H

typedef void *ips_hook_dlsym(void *handle, const char *name);

/* The C library's, once it was found; hook_dlsym.S jumps to it. */
extern ips_hook_dlsym *ips_hook_real;
/* Finds it; NULL only where the C library is no glibc. */
ips_hook_dlsym *ips_hook_resolve(void);
/* The shim's function, or NULL: ask the real dlsym. caller: the return address. */
void *ips_hook_find(void *handle, const char *name, const void *caller);

#endif
