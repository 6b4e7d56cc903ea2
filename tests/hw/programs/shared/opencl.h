/* OpenCL without headers or a loader at link time. */
#pragma once

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void* Handle;
typedef int32_t (*GetPlatforms)(uint32_t, Handle*, uint32_t*);
typedef int32_t (*GetDevices)(Handle, uint64_t, uint32_t, Handle*, uint32_t*);
typedef int32_t (*GetInfo)(Handle, uint32_t, size_t, void*, size_t*);
typedef Handle (*CreateContext)(const intptr_t*, uint32_t, const Handle*, void*, void*, int32_t*);
typedef Handle (*CreateQueue)(Handle, Handle, uint64_t, int32_t*);
typedef Handle (*CreateBuffer)(Handle, uint64_t, size_t, void*, int32_t*);
typedef int32_t (*Fill)(Handle, Handle, const void*, size_t, size_t, size_t, uint32_t, void*, void*);
typedef int32_t (*One)(Handle); /* clFinish, clFlush, clReleaseMemObject */
typedef Handle (*CreateProgram)(Handle, uint32_t, const char**, const size_t*, int32_t*);
typedef int32_t (*BuildProgram)(Handle, uint32_t, const Handle*, const char*, void*, void*);
typedef Handle (*CreateKernel)(Handle, const char*, int32_t*);
typedef int32_t (*SetArgument)(Handle, uint32_t, size_t, const void*);
typedef int32_t (*Enqueue)(Handle, Handle, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, void*,
                           void*);
typedef int32_t (*Read)(Handle, Handle, uint32_t, size_t, size_t, void*, uint32_t, void*, void*);

enum { kDeviceTypeGpu = 4, kPlatformName = 0x0902, kReadWrite = 1 };

/* From OpenCl() on. */
static void* library;
static Handle platform, device, context, queue;

/* A function of the loader. */
#define GET(type, name) ((type)dlsym(library, name))

static void Check(int32_t error, const char* what) {
  if (error == 0) return;
  printf("%s: OpenCL error %d\n", what, error);
  exit(1);
}

/* Makes a context and a queue on the first GPU. Ends the program with 77 where there is none. */
static void OpenCl(void) {
  library = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (library == NULL) {
    printf("no loader: %s\n", dlerror());
    exit(77);
  }
  Handle platforms[8];
  uint32_t count = 0;
  if (GET(GetPlatforms, "clGetPlatformIDs")(8, platforms, &count) != 0) count = 0;
  for (uint32_t i = 0; i < count && i < 8 && device == NULL; ++i) {
    platform = platforms[i];
    if (GET(GetDevices, "clGetDeviceIDs")(platform, kDeviceTypeGpu, 1, &device, NULL) != 0) device = NULL;
  }
  if (device == NULL) {
    printf("no OpenCL GPU\n");
    exit(77);
  }
  int32_t error = 0;
  context = GET(CreateContext, "clCreateContext")(NULL, 1, &device, NULL, NULL, &error);
  Check(error, "clCreateContext");
  queue = GET(CreateQueue, "clCreateCommandQueue")(context, device, 0, &error);
  Check(error, "clCreateCommandQueue");
}

static Handle Buffer(size_t bytes) {
  int32_t error = 0;
  const Handle buffer = GET(CreateBuffer, "clCreateBuffer")(context, kReadWrite, bytes, NULL, &error);
  Check(error, "clCreateBuffer");
  return buffer;
}

/* The kernel of that name, built from source. */
static Handle Kernel(const char* source, const char* name) {
  int32_t error = 0;
  const Handle program = GET(CreateProgram, "clCreateProgramWithSource")(context, 1, &source, NULL, &error);
  Check(error, "clCreateProgramWithSource");
  Check(GET(BuildProgram, "clBuildProgram")(program, 1, &device, "", NULL, NULL), "clBuildProgram");
  const Handle kernel = GET(CreateKernel, "clCreateKernel")(program, name, &error);
  Check(error, "clCreateKernel");
  return kernel;
}

static void Launch(Handle kernel, size_t threads) {
  Check(GET(Enqueue, "clEnqueueNDRangeKernel")(queue, kernel, 1, NULL, &threads, NULL, 0, NULL, NULL), "launch");
}

/* Waits for all that was queued before. */
static void ReadBuffer(Handle buffer, void* host, size_t bytes) {
  Check(GET(Read, "clEnqueueReadBuffer")(queue, buffer, 1, 0, bytes, host, 0, NULL, NULL), "read");
}
