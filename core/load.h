/* SPDX-License-Identifier: Apache-2.0 */
/* The one way in which the shim loads a library that is not loaded yet. Invariant:
 * nothing is loaded from a relative path, be it named, or an entry of the loader's search
 * path. */
#ifndef IPS_CORE_LOAD_H
#define IPS_CORE_LOAD_H

/* Opens an absolute path, or a name without a slash that the loader looks up (which an
 * object of that name, loaded already, answers). 0; -EPERM: refused, it would come from a
 * relative path; -ENOENT: it can't be loaded. *ret_cause says why; it is valid until the
 * thread's next call into the loader. Thread-safe. */
int ips_load(const char *name, void **ret_handle, const char **ret_cause);

#endif
