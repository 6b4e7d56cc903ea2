// peer_memory [GIB]: without Tessera, on two GPUs. A process with a context on GPU 1 makes memory there, another one
// with a context on GPU 0 alone imports it, and copies to it and back; a third one, which sees GPU 0 alone, tries to
// import it. Prints a line for each figure.
#include <sys/socket.h>
#include <sys/wait.h>

#include "clock.h"
#include "driver.h"

namespace {

constexpr size_t kChunk = 64 * kMiB;

void Send(int socket, int fd) {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  EXPECT(sendmsg(socket, &message, 0) == 1);
}

int Receive(int socket) {
  char byte;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  EXPECT(recvmsg(socket, &message, 0) == 1);
  int fd = -1;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

void Tell(int socket) { EXPECT(write(socket, "x", 1) == 1); }
void Hear(int socket) {
  char byte;
  EXPECT(read(socket, &byte, 1) == 1);
}

CUmemAllocationProp OnGpu(CUdevice device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

// Times in us, the mean of each chunk.
struct Mapped {
  CUdeviceptr address = 0;
  std::vector<CUmemGenericAllocationHandle> handles;
};

void Access(CUdevice device, CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CU(cuMemSetAccess(address, bytes, &access, 1));
}

void Print(const char* what, double us, size_t count) { std::printf("%s %.1f us each\n", what, us / count); }
void PrintRate(const char* what, double seconds, size_t bytes) {
  std::printf("%s %.1f GB/s\n", what, static_cast<double>(bytes) / 1e9 / seconds);
}

double Copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const double begin = Now();
  for (size_t at = 0; at < bytes; at += kChunk) CU(cuMemcpyDtoDAsync(to + at, from + at, kChunk, stream));
  CU(cuStreamSynchronize(stream));
  const double took = Now() - begin;
  CU(cuStreamDestroy(stream));
  return took;
}

void Maker(int socket, int blind, size_t count) {
  CUdevice device = UseDevice(1);
  const CUmemAllocationProp on = OnGpu(device);
  Mapped slots;
  std::vector<int> fds(count);
  double begin = NowUs();
  slots.handles.resize(count);
  for (auto& handle : slots.handles) CU(cuMemCreate(&handle, kChunk, &on, 0));
  Print("a slot is made on GPU 1", NowUs() - begin, count);
  begin = NowUs();
  for (size_t i = 0; i < count; ++i)
    CU(cuMemExportToShareableHandle(&fds[i], slots.handles[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  Print("exported", NowUs() - begin, count);
  for (int fd : fds) Send(socket, fd);
  Send(blind, fds[0]);
  CU(cuMemAddressReserve(&slots.address, count * kChunk, 0, 0, 0));
  begin = NowUs();
  for (size_t i = 0; i < count; ++i) CU(cuMemMap(slots.address + i * kChunk, kChunk, 0, slots.handles[i], 0));
  Access(device, slots.address, count * kChunk);
  Print("mapped on GPU 1", NowUs() - begin, count);
  Hear(socket);  // they are filled
  std::vector<uint32_t> words(count);
  for (size_t i = 0; i < count; ++i) CU(cuMemcpyDtoH(&words[i], slots.address + i * kChunk + kChunk - 4, 4));
  for (size_t i = 0; i < count; ++i) EXPECT(words[i] == 0x5a000000u + i);
  // Into chunks that are made one by one, as a program's, while the slots go.
  CUdeviceptr chunks;
  CU(cuMemAddressReserve(&chunks, count * kChunk, 0, 0, 0));
  std::vector<CUmemGenericAllocationHandle> made(count);
  begin = NowUs();
  for (size_t i = 0; i < count; ++i) {
    CU(cuMemCreate(&made[i], kChunk, &on, 0));
    CU(cuMemMap(chunks + i * kChunk, kChunk, 0, made[i], 0));
    Access(device, chunks + i * kChunk, kChunk);
  }
  Print("a chunk is made and mapped", NowUs() - begin, count);
  PrintRate("from slots to chunks on GPU 1", Copy(chunks, slots.address, count * kChunk), count * kChunk);
  Tell(socket);
  Hear(socket);  // unmapped there
  begin = NowUs();
  for (size_t i = 0; i < count; ++i) {
    CU(cuMemUnmap(slots.address + i * kChunk, kChunk));
    CU(cuMemRelease(slots.handles[i]));
    close(fds[i]);
  }
  Print("a slot is unmapped and released", NowUs() - begin, count);
  std::fflush(stdout);
}

void User(int socket, size_t count) {
  CUdevice device = UseDevice(0), other;
  CU(cuDeviceGet(&other, 1));
  int may = 0;
  CU(cuDeviceCanAccessPeer(&may, device, other));
  std::printf("GPU 0 reaches GPU 1: %s\n", may ? "yes" : "no");
  CUmemGenericAllocationHandle own;
  const CUmemAllocationProp there = OnGpu(other);
  std::printf("cuMemCreate on GPU 1 without a context there: %s\n", Name(cuMemCreate(&own, kChunk, &there, 0)));
  std::vector<int> fds(count);
  for (int& fd : fds) fd = Receive(socket);
  Mapped slots;
  slots.handles.resize(count);
  double begin = NowUs();
  for (size_t i = 0; i < count; ++i) {
    CU(cuMemImportFromShareableHandle(&slots.handles[i], reinterpret_cast<void*>(static_cast<intptr_t>(fds[i])),
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  }
  Print("imported by who has a context on GPU 0", NowUs() - begin, count);
  CUmemAllocationProp properties;
  CU(cuMemGetAllocationPropertiesFromHandle(&properties, slots.handles[0]));
  std::printf("its location there: type %d, id %d\n", properties.location.type, properties.location.id);
  CU(cuMemAddressReserve(&slots.address, count * kChunk, 0, 0, 0));
  begin = NowUs();
  for (size_t i = 0; i < count; ++i) {
    CU(cuMemMap(slots.address + i * kChunk, kChunk, 0, slots.handles[i], 0));
    Access(device, slots.address + i * kChunk, kChunk);
  }
  Print("mapped for GPU 0", NowUs() - begin, count);
  unsigned flags;
  int active = 0;
  CU(cuDevicePrimaryCtxGetState(other, &flags, &active));
  std::printf("a context on GPU 1 besides: %s\n", active ? "yes" : "no");
  CUdeviceptr local;
  CU(cuMemAlloc(&local, count * kChunk));
  for (size_t i = 0; i < count; ++i) CU(cuMemsetD32(local + i * kChunk, 0x5a000000u + i, kChunk / 4));
  CU(cuCtxSynchronize());
  PrintRate("GPU 0 writes to GPU 1, first", Copy(slots.address, local, count * kChunk), count * kChunk);
  PrintRate("GPU 0 writes to GPU 1", Copy(slots.address, local, count * kChunk), count * kChunk);
  PrintRate("GPU 0 reads from GPU 1", Copy(local, slots.address, count * kChunk), count * kChunk);
  std::fflush(stdout);
  Tell(socket);
  Hear(socket);
  begin = NowUs();
  for (size_t i = 0; i < count; ++i) {
    CU(cuMemUnmap(slots.address + i * kChunk, kChunk));
    CU(cuMemRelease(slots.handles[i]));
    close(fds[i]);
  }
  Print("unmapped and released by GPU 0", NowUs() - begin, count);
  std::fflush(stdout);
  Tell(socket);
}

void Blind(int socket) {
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  CUdevice device = UseDevice(0);
  const int fd = Receive(socket);
  CUmemGenericAllocationHandle handle;
  const CUresult imported = cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  std::printf("imported by who sees GPU 0 alone: %s\n", Name(imported));
  if (imported == CUDA_SUCCESS) {
    CUdeviceptr address;
    CU(cuMemAddressReserve(&address, kChunk, 0, 0, 0));
    std::printf("mapped: %s\n", Name(cuMemMap(address, kChunk, 0, handle, 0)));
    CUmemAccessDesc access = {};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    std::printf("access: %s\n", Name(cuMemSetAccess(address, kChunk, &access, 1)));
  }
  std::fflush(stdout);
}

template <typename Run>
pid_t Child(Run run) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  run();
  std::exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t count = (argc > 1 ? strtoul(argv[1], nullptr, 10) : 4) * kGiB / kChunk;
  int user[2], blind[2];
  EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, user) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, blind) == 0);
  const pid_t children[] = {Child([&] { Maker(user[0], blind[0], count); }), Child([&] { User(user[1], count); }),
                            Child([&] { Blind(blind[1]); })};
  bool good = true;
  for (const pid_t child : children) {
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    good &= status == 0;
  }
  return good ? 0 : 1;
}
