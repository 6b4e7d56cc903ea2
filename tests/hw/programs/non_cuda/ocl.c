// OpenCL: builds a kernel from source, runs it and prints a checksum of its words. Tessera does not touch OpenCL; this
// shows that it does not break it either. Ends with 77 where there is no OpenCL on a GPU.
#include "opencl.h"

enum { kWords = 1 << 20 };

static const char* kSource =
    "kernel void mix(global uint* data) { uint i = get_global_id(0); data[i] = i * 2654435761u + 17u; }";

int main(void) {
  OpenCl();
  char name[256] = "";
  GET(GetInfo, "clGetPlatformInfo")(platform, kPlatformName, sizeof name, name, NULL);
  const Handle buffer = Buffer(kWords * 4);
  const Handle kernel = Kernel(kSource, "mix");
  Check(GET(SetArgument, "clSetKernelArg")(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
  Launch(kernel, kWords);
  uint32_t* host = malloc(kWords * 4);
  ReadBuffer(buffer, host, kWords * 4);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kWords; ++i) sum = sum * 31 + host[i];
  printf("%s %08x\n", name, sum);
  return 0;
}
