// OpenCL without headers or a loader at link time: builds a kernel from source, runs it and prints a checksum of its
// words. Tessera does not touch OpenCL; this shows that it does not break it either.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void* Handle;
typedef int32_t (*GetIds)(Handle, uint64_t, uint32_t, Handle*, uint32_t*);
typedef int32_t (*GetPlatforms)(uint32_t, Handle*, uint32_t*);
typedef int32_t (*GetInfo)(Handle, uint32_t, size_t, void*, size_t*);
typedef Handle (*CreateContext)(const intptr_t*, uint32_t, const Handle*, void*, void*, int32_t*);
typedef Handle (*CreateQueue)(Handle, Handle, uint64_t, int32_t*);
typedef Handle (*CreateBuffer)(Handle, uint64_t, size_t, void*, int32_t*);
typedef Handle (*CreateProgram)(Handle, uint32_t, const char**, const size_t*, int32_t*);
typedef int32_t (*BuildProgram)(Handle, uint32_t, const Handle*, const char*, void*, void*);
typedef Handle (*CreateKernel)(Handle, const char*, int32_t*);
typedef int32_t (*SetArgument)(Handle, uint32_t, size_t, const void*);
typedef int32_t (*Enqueue)(Handle, Handle, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, void*,
                           void*);
typedef int32_t (*Read)(Handle, Handle, uint32_t, size_t, size_t, void*, uint32_t, void*, void*);

enum { kWords = 1 << 20, kDeviceTypeGpu = 4, kPlatformName = 0x0902, kReadWrite = 1 };

static const char* kSource =
    "kernel void mix(global uint* data) { uint i = get_global_id(0); data[i] = i * 2654435761u + 17u; }";

static void Check(int32_t error, const char* what) {
  if (error == 0) return;
  printf("%s: OpenCL error %d\n", what, error);
  exit(1);
}

int main(void) {
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (library == NULL) {
    printf("no loader: %s\n", dlerror());
    return 77;
  }
#define GET(type, name) ((type)dlsym(library, name))
  int32_t error = 0;
  uint32_t count = 0;
  Handle platform, device;
  if (GET(GetPlatforms, "clGetPlatformIDs")(1, &platform, &count) != 0 || count == 0) {
    printf("no platform\n");
    return 77;
  }
  char name[256] = "";
  GET(GetInfo, "clGetPlatformInfo")(platform, kPlatformName, sizeof name, name, NULL);
  Check(GET(GetIds, "clGetDeviceIDs")(platform, kDeviceTypeGpu, 1, &device, &count), "clGetDeviceIDs");
  Handle context = GET(CreateContext, "clCreateContext")(NULL, 1, &device, NULL, NULL, &error);
  Check(error, "clCreateContext");
  Handle queue = GET(CreateQueue, "clCreateCommandQueue")(context, device, 0, &error);
  Check(error, "clCreateCommandQueue");
  Handle buffer = GET(CreateBuffer, "clCreateBuffer")(context, kReadWrite, kWords * 4, NULL, &error);
  Check(error, "clCreateBuffer");
  Handle program = GET(CreateProgram, "clCreateProgramWithSource")(context, 1, &kSource, NULL, &error);
  Check(error, "clCreateProgramWithSource");
  Check(GET(BuildProgram, "clBuildProgram")(program, 1, &device, "", NULL, NULL), "clBuildProgram");
  Handle kernel = GET(CreateKernel, "clCreateKernel")(program, "mix", &error);
  Check(error, "clCreateKernel");
  Check(GET(SetArgument, "clSetKernelArg")(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
  size_t words = kWords;
  Check(GET(Enqueue, "clEnqueueNDRangeKernel")(queue, kernel, 1, NULL, &words, NULL, 0, NULL, NULL), "launch");
  uint32_t* host = malloc(kWords * 4);
  Check(GET(Read, "clEnqueueReadBuffer")(queue, buffer, 1, 0, kWords * 4, host, 0, NULL, NULL), "read");
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kWords; ++i) sum = sum * 31 + host[i];
  printf("%s %08x\n", name, sum);
  return 0;
}
