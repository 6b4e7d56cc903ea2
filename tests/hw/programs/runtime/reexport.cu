// Whether memory that came from another process can be handed on: by exporting what was imported, and by the descriptor
// itself, also when the process that made it has ended. The mover and its pool rest on that.
//
// Three processes: `maker` makes the memory and ends, `middle` imports it, `last` gets it from the middle one. Prints a
// line of JSON a kind of memory.
#include <cuda.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr std::size_t kBytes = 32u << 20;
constexpr std::uint32_t kWord = 0x7e55e4a;

void Send(int socket, int fd, int word = 0) {
  msghdr message{};
  iovec vec{&word, sizeof word};
  char control[CMSG_SPACE(sizeof fd)] = {};
  message.msg_iov = &vec;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  sendmsg(socket, &message, 0);
}

int Receive(int socket, int* word = nullptr) {
  msghdr message{};
  int value = -1, fd = -1;
  iovec vec{&value, sizeof value};
  char control[CMSG_SPACE(sizeof fd)] = {};
  message.msg_iov = &vec;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  recvmsg(socket, &message, 0);
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  if (word) *word = value;
  return fd;
}

void Start() {
  CUdevice device;
  CUcontext context;
  cuInit(0);
  cuDeviceGet(&device, 0);
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
}

CUresult Import(int fd, CUmemGenericAllocationHandle* handle) {
  return cuMemImportFromShareableHandle(handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUdeviceptr Map(CUmemGenericAllocationHandle handle) {
  CUdeviceptr address = 0;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (cuMemAddressReserve(&address, kBytes, kBytes, 0, 0) != CUDA_SUCCESS) return 0;
  if (cuMemMap(address, kBytes, 0, handle, 0) != CUDA_SUCCESS) return 0;
  return cuMemSetAccess(address, kBytes, &access, 1) == CUDA_SUCCESS ? address : 0;
}

// The word that a program finds there; 0 if it cannot have the memory.
std::uint32_t WordIn(int fd, CUresult* imported) {
  CUmemGenericAllocationHandle handle = 0;
  *imported = Import(fd, &handle);
  std::uint32_t word = 0;
  if (*imported != CUDA_SUCCESS) return 0;
  if (const CUdeviceptr address = Map(handle)) cuMemcpyDtoH(&word, address, sizeof word);
  return word;
}

void Maker(bool host, int to) {
  Start();
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  if (cuMemCreate(&handle, kBytes, &prop, 0) == CUDA_SUCCESS)
    cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (const CUdeviceptr address = Map(handle)) cuMemsetD32(address, kWord, kBytes / 4);
  cuCtxSynchronize();
  Send(to, fd);
  int word;
  Receive(to, &word);  // until the middle one has imported it
}

void Middle(int from, int to) {
  Start();
  const int fd = Receive(from);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult imported = Import(fd, &handle);
  Send(from, -1);
  int again = -1;
  const CUresult exported = cuMemExportToShareableHandle(&again, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  Send(to, -1, imported);
  Send(to, exported == CUDA_SUCCESS ? again : -1, exported);
  char byte;
  if (read(from, &byte, 1) != 0) std::fprintf(stderr, "the maker should have ended\n");
  Send(to, fd);
  int word;
  Receive(to, &word);
}

}  // namespace

int main() {
  for (const bool host : {false, true}) {
    int first[2], second[2];
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, first);
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, second);
    const pid_t maker = fork();
    if (maker == 0) {
      close(first[1]), close(second[0]), close(second[1]);
      Maker(host, first[0]);
      _exit(0);
    }
    const pid_t middle = fork();
    if (middle == 0) {
      close(first[0]), close(second[1]);
      Middle(first[1], second[0]);
      _exit(0);
    }
    close(first[0]), close(first[1]), close(second[0]);
    const pid_t last = fork();
    if (last == 0) {
      Start();
      int imported = 0, exported = 0;
      CUresult by_export = CUDA_ERROR_UNKNOWN, by_descriptor = CUDA_ERROR_UNKNOWN;
      Receive(second[1], &imported);
      const int again = Receive(second[1], &exported);
      const std::uint32_t word_again = again >= 0 ? WordIn(again, &by_export) : 0;
      const int fd = Receive(second[1]);
      const std::uint32_t word = fd >= 0 ? WordIn(fd, &by_descriptor) : 0;
      std::printf(
          "{\"memory\": \"%s\", \"imported\": %d, \"exported_again\": %d, \"import_of_that\": %d, \"right\": %s, "
          "\"import_of_the_descriptor_after_its_maker\": %d, \"right_too\": %s}\n",
          host ? "host" : "device", imported, exported, by_export, word_again == kWord ? "true" : "false",
          by_descriptor, word == kWord ? "true" : "false");
      std::fflush(stdout);
      Send(second[1], -1);
      _exit(0);
    }
    close(second[1]);
    for (const pid_t pid : {maker, middle, last}) waitpid(pid, nullptr, 0);
  }
}
