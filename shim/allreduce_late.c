/* SPDX-License-Identifier: Apache-2.0 */
/* ncclAllReduceConfig, of NCCL 2.31. Must not see nccl.h, like forward_late.c. */
#include "shim/forwarded.h"
#include "shim/request.h"

#define LATE_OWN(name, parameters, arguments) int name parameters;
#include "shim/api.def"

/* Without a config it is ncclAllReduce. What a config asks for is NCCL's to do; all ranks
 * pass the same. */
IPS_EXPORT int ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                                   int datatype, int op, void *comm, void *stream,
                                   const void *config)
{
    __typeof__(&ncclAllReduceConfig) real = IPS_REAL(ncclAllReduceConfig);
    if (!real)
        return ips_real_missing(IPS_SLOT_ncclAllReduceConfig);
    if (ips_pass())
        return real(sendbuff, recvbuff, count, datatype, op, comm, stream, config);
    const struct ips_request request = {
        sendbuff, recvbuff, count,  datatype,
        op,       comm,     stream, IPS_SLOT_ncclAllReduceConfig};
    const char *reason = "called with a config";
    int result;
    if (!config && ips_allreduce_take(&request, &result, &reason))
        return result;
    IPS_FORWARD_TRACED(int, ncclAllReduceConfig,
                       (sendbuff, recvbuff, count, datatype, op, comm, stream, config),
                       count, datatype, op, reason);
}
