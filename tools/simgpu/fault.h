/* SPDX-License-Identifier: Apache-2.0 */
/* What tests ask of a stand-in through the environment: fail the nth call of a function,
 * and write down which functions were called. */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#define SIM_API __attribute__((visibility("default")))

/* The error that PREFIX_FAIL ("name:nth:error,...", nth from 1, 0 for every call) asks
 * for on this call of the function, else 0. A negative one is a signal, which this process
 * gets; then it is 0 as well. prefix is the same in all calls of one library. */
int sim_fault(const char *prefix, const char *function);

/* Whether PREFIX_LOG names a file; then sim_log appends one line to it, atomically. */
int sim_logging(const char *prefix);
void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
