#include "peer.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

namespace tessera::churn {

using namespace cuda;

namespace {

enum class Deed { kOpen, kStep, kClose };

struct Order {
  Deed deed;
  int slot;
  CUipcMemHandle handle;
  std::uint64_t words, stride, factor, term;
};

struct Answer {
  CUresult result = CUDA_SUCCESS;
  std::uint64_t seen = 0;  // of the words before the step
};

std::uint64_t Digest(std::span<const std::uint64_t> words) {
  std::uint64_t digest = words.size();
  for (const std::uint64_t word : words) digest = (digest ^ word) * 0x9e3779b97f4a7c15 + (digest >> 29);
  return digest;
}

[[noreturn]] void Serve(int socket, int slots) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Gpu gpu;
  std::vector<CUdeviceptr> open(static_cast<std::size_t>(slots));
  std::vector<std::uint64_t> words;
  Order order{};
  while (recv(socket, &order, sizeof order, 0) == sizeof order) {
    CUdeviceptr& address = open[static_cast<std::size_t>(order.slot)];
    Answer answer;
    if (order.deed == Deed::kOpen)
      answer.result = Call("cuIpcOpenMemHandle_v2", &address, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (order.deed == Deed::kClose) Must("cuIpcCloseMemHandle", address);
    if (order.deed == Deed::kStep) {
      words.resize(order.words);
      gpu.Gather(words, address, order.stride);
      answer.seen = Digest(words);
      gpu.Step(address, order.words, order.stride, order.factor, order.term);
      gpu.Synchronize();
    }
    if (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) break;
  }
  std::_Exit(0);
}

Answer Ask(int socket, const Order& order) {
  Answer answer;
  if (send(socket, &order, sizeof order, MSG_NOSIGNAL) != sizeof order ||
      recv(socket, &answer, sizeof answer, 0) != sizeof answer)
    Die("the second process", "it has ended");
  return answer;
}

}  // namespace

Peer::Peer() {
  int ends[2] = {};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) Die("socketpair", "no sockets");
  const pid_t child = fork();
  if (child < 0) Die("fork", "no process");
  close(ends[child == 0 ? 0 : 1]);
  if (child == 0) Serve(ends[1], kSlots);
  socket_ = ends[0];
}

Peer::~Peer() { close(socket_); }

CUresult Peer::Open(Buffer& buffer) {
  const auto free = std::find(std::begin(taken_), std::end(taken_), false);
  if (free == std::end(taken_)) return CUDA_SUCCESS;
  Order order{.deed = Deed::kOpen, .slot = static_cast<int>(free - std::begin(taken_))};
  const CUresult made = Call("cuIpcGetMemHandle", &order.handle, buffer.address);
  if (made != CUDA_SUCCESS) return made;
  const CUresult result = Ask(socket_, order).result;
  if (result != CUDA_SUCCESS) return result;
  *free = true;
  buffer.slot = order.slot;
  return result;
}

std::uint64_t Peer::Step(Buffer& buffer, std::uint64_t factor, std::uint64_t term) {
  const std::uint64_t expected = Digest(buffer.words);
  const Answer answer = Ask(socket_, {.deed = Deed::kStep,
                                      .slot = buffer.slot,
                                      .words = buffer.words.size(),
                                      .stride = buffer.stride,
                                      .factor = factor,
                                      .term = term});
  StepOnHost(buffer.words, factor, term);
  return answer.seen == expected ? 0 : 1;
}

void Peer::Close(Buffer& buffer) {
  Ask(socket_, {.deed = Deed::kClose, .slot = buffer.slot});
  taken_[buffer.slot] = false;
  buffer.slot = -1;
}

}  // namespace tessera::churn
