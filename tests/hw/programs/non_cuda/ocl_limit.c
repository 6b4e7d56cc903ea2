/* OpenCL, which Tessera's shim does not see:
 *   ocl_limit limit MOST_BYTES  takes buffers until one is refused: "got BYTES", "refused ERROR" (0: it had all it
 *     wanted); holds them until a line on standard input, then frees them and takes them again: "again BYTES"
 *   ocl_limit busy STEPS  kernels that step words so often, one after the other; ordered about as orders.h says, one
 *     count is one kernel
 * Ends with 77 where there is no OpenCL on a GPU. */
#include "opencl.h"
#include "orders.h"
#include "stepped.h"

enum { kMiB = 1 << 20, kMostPieces = 16384, kWords = 4096 };

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
  ReadBuffer(pieces[taken - 1], &word, sizeof word);
  printf("%s\n", word == 0x7e55e7a ? "works" : "WRONG");
  return word != 0x7e55e7a;
}

static const char* kSource =
    "kernel void advance(global uint* words, uint steps) {"
    "  uint word = words[get_global_id(0)];"
    "  for (uint i = 0; i < steps; ++i) word = word * 1664525u + 1013904223u;"
    "  words[get_global_id(0)] = word;"
    "}";

static int Busy(uint32_t steps) {
  const Handle kernel = Kernel(kSource, "advance");
  const uint32_t zero = 0;
  const Handle words = Buffer(kWords * 4);
  Check(GET(Fill, "clEnqueueFillBuffer")(queue, words, &zero, 4, 0, kWords * 4, 0, NULL, NULL), "fill");
  Check(GET(SetArgument, "clSetKernelArg")(kernel, 0, sizeof words, (const void*)&words), "clSetKernelArg");
  Check(GET(SetArgument, "clSetKernelArg")(kernel, 1, sizeof steps, &steps), "clSetKernelArg");
  TakeOrders(steps);
  while (!OrderedToEnd()) {
    for (int i = 0; i < 4; ++i) Launch(kernel, kWords);
    Check(GET(One, "clFinish")(queue), "clFinish");
    CountWork(4);
  }
  static uint32_t host[kWords];
  ReadBuffer(words, host, sizeof host);
  return ReportDone(AllStepped(host, kWords, WorkDone() * steps));
}

int main(int argc, char** argv) { return LimitOrBusy(argc, argv, OpenCl, Limit, Busy); }
