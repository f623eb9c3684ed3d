extern "C" __global__ void ips_probe() {}
