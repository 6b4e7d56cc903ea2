/* OpenCL without headers or a loader at link time, which Tessera's shim does not see:
 *   ocl_limit limit MOST_BYTES  buffers until one is refused: "got BYTES", "refused ERROR" (0: it had all it wanted);
 * they are held until a line on standard input, then freed and had again: "again BYTES" ocl_limit busy STEPS kernels
 * that step words so often, one after the other; ordered about as orders.h says, one count is one kernel Ends with 77
 * where there is no OpenCL. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "orders.h"

typedef void* Handle;
typedef int32_t (*GetPlatforms)(uint32_t, Handle*, uint32_t*);
typedef int32_t (*GetDevices)(Handle, uint64_t, uint32_t, Handle*, uint32_t*);
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

enum { kMiB = 1 << 20, kMostPieces = 16384, kDeviceTypeGpu = 4, kReadWrite = 1, kWords = 4096 };

static void* library;
static Handle context, queue, device;

#define GET(type, name) ((type)dlsym(library, name))

static void Check(int32_t error, const char* what) {
  if (error == 0) return;
  printf("%s: OpenCL error %d\n", what, error);
  exit(1);
}

static void Open(void) {
  library = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (library == NULL) {
    printf("no loader: %s\n", dlerror());
    exit(77);
  }
  Handle platforms[8];
  uint32_t count = 0;
  if (GET(GetPlatforms, "clGetPlatformIDs")(8, platforms, &count) != 0) count = 0;
  for (uint32_t i = 0; i < count && i < 8 && device == NULL; ++i) {
    if (GET(GetDevices, "clGetDeviceIDs")(platforms[i], kDeviceTypeGpu, 1, &device, NULL) != 0) device = NULL;
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

static Handle pieces[kMostPieces];
static size_t taken;

/* A buffer gets its memory when it is first used. */
static int32_t TakePiece(size_t bytes) {
  const uint32_t pattern = 0x7e55e7a;
  int32_t error = 0;
  Handle piece = GET(CreateBuffer, "clCreateBuffer")(context, kReadWrite, bytes, NULL, &error);
  if (error != 0) return error;
  error = GET(Fill, "clEnqueueFillBuffer")(queue, piece, &pattern, sizeof pattern, 0, bytes, 0, NULL, NULL);
  const int32_t finished = GET(One, "clFinish")(queue);
  if (error == 0) error = finished;
  if (error != 0)
    GET(One, "clReleaseMemObject")(piece);
  else
    pieces[taken++] = piece;
  return error;
}

static size_t Take(size_t most, int32_t* refused) {
  size_t got = 0;
  *refused = 0;
  for (size_t bytes = 64 * (size_t)kMiB; bytes >= 2 * (size_t)kMiB; bytes /= 2) {
    while (got + bytes <= most && taken < kMostPieces) {
      const int32_t error = TakePiece(bytes);
      if (error != 0) {
        *refused = error;
        break;
      }
      got += bytes;
    }
  }
  return got;
}

static int Limit(size_t most) {
  int32_t refused = 0;
  const size_t got = Take(most, &refused);
  printf("ready %d\ngot %zu\nrefused %d\n", (int)getpid(), got, refused);
  fflush(stdout);
  char line[16];
  if (fgets(line, sizeof line, stdin) == NULL) return 0;
  while (taken > 0) Check(GET(One, "clReleaseMemObject")(pieces[--taken]), "clReleaseMemObject");
  Check(GET(One, "clFinish")(queue), "clFinish");
  printf("again %zu\n", Take(most, &refused));
  uint32_t word = 0;
  if (taken == 0) return 1;
  Check(GET(Read, "clEnqueueReadBuffer")(queue, pieces[taken - 1], 1, 0, sizeof word, &word, 0, NULL, NULL), "read");
  printf("%s\n", word == 0x7e55e7a ? "works" : "WRONG");
  return word != 0x7e55e7a;
}

static const char* kSource =
    "kernel void advance(global uint* words, uint steps) {"
    "  uint word = words[get_global_id(0)];"
    "  for (uint i = 0; i < steps; ++i) word = word * 1664525u + 1013904223u;"
    "  words[get_global_id(0)] = word;"
    "}";

/* What so many steps make of a word. */
static uint32_t Stepped(uint32_t word, unsigned long long steps) {
  uint32_t a = 1664525u, c = 1013904223u;
  for (; steps != 0; steps >>= 1) {
    if (steps & 1) word = word * a + c;
    c = a * c + c;
    a *= a;
  }
  return word;
}

static int Busy(uint32_t steps) {
  int32_t error = 0;
  Handle program = GET(CreateProgram, "clCreateProgramWithSource")(context, 1, &kSource, NULL, &error);
  Check(error, "clCreateProgramWithSource");
  Check(GET(BuildProgram, "clBuildProgram")(program, 1, &device, "", NULL, NULL), "clBuildProgram");
  Handle kernel = GET(CreateKernel, "clCreateKernel")(program, "advance", &error);
  Check(error, "clCreateKernel");
  const uint32_t zero = 0;
  Handle words = GET(CreateBuffer, "clCreateBuffer")(context, kReadWrite, kWords * 4, NULL, &error);
  Check(error, "clCreateBuffer");
  Check(GET(Fill, "clEnqueueFillBuffer")(queue, words, &zero, 4, 0, kWords * 4, 0, NULL, NULL), "fill");
  Check(GET(SetArgument, "clSetKernelArg")(kernel, 0, sizeof words, (const void*)&words), "clSetKernelArg");
  Check(GET(SetArgument, "clSetKernelArg")(kernel, 1, sizeof steps, &steps), "clSetKernelArg");
  TakeOrders(steps);
  const size_t threads = kWords;
  while (!OrderedToEnd()) {
    for (int i = 0; i < 4; ++i) {
      Check(GET(Enqueue, "clEnqueueNDRangeKernel")(queue, kernel, 1, NULL, &threads, NULL, 0, NULL, NULL), "launch");
    }
    Check(GET(One, "clFinish")(queue), "clFinish");
    CountWork(4);
  }
  static uint32_t host[kWords];
  Check(GET(Read, "clEnqueueReadBuffer")(queue, words, 1, 0, sizeof host, host, 0, NULL, NULL), "read");
  int right = 1;
  for (int i = 0; i < kWords; ++i) right = right && host[i] == Stepped(0, WorkDone() * steps);
  return ReportDone(right);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  Open();
  if (strcmp(argv[1], "limit") == 0) return Limit(strtoull(argv[2], NULL, 10));
  if (strcmp(argv[1], "busy") == 0) return Busy((uint32_t)strtoul(argv[2], NULL, 10));
  return 2;
}
