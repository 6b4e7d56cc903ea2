#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(Descriptor, DevicesAndMemoryArePrompt) {
  EXPECT_TRUE(IsPrompt(UniqueFd(open("/dev/null", O_RDWR)).Get()));
  EXPECT_TRUE(IsPrompt(UniqueFd(memfd_create("test", MFD_CLOEXEC)).Get()));
  EXPECT_TRUE(IsPrompt(UniqueFd(epoll_create1(EPOLL_CLOEXEC)).Get()));  // no file, as a seccomp listener
  EXPECT_FALSE(IsPrompt(UniqueFd(open("/proc/self/stat", O_RDONLY)).Get()));
  EXPECT_FALSE(IsPrompt(UniqueFd(open("/", O_RDONLY)).Get()));
  EXPECT_FALSE(IsPrompt(UniqueFd(socket(AF_UNIX, SOCK_STREAM, 0)).Get()));
  EXPECT_FALSE(IsPrompt(-1));
}

TEST(Descriptor, IsClosedElsewhere) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  CloseElsewhere(UniqueFd(ends[1]));
  char byte;
  EXPECT_EQ(read(out.Get(), &byte, 1), 0);
}

// The slave of a pseudo-terminal notices when its master is closed.
TEST(Descriptor, DevicesAreClosedByAThread) {
  UniqueFd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master);
  ASSERT_EQ(unlockpt(master.Get()), 0);
  char name[64];
  ASSERT_EQ(ptsname_r(master.Get(), name, sizeof name), 0);
  const UniqueFd slave(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(slave);
  CloseDevice(std::move(master));
  pollfd hangup{.fd = slave.Get(), .events = 0, .revents = 0};
  ASSERT_EQ(poll(&hangup, 1, 60'000), 1);
  EXPECT_NE(hangup.revents & POLLHUP, 0);
  bool found = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm");
    std::string line;
    std::getline(comm, line);
    found |= line == "tessera-close";
  }
  EXPECT_TRUE(found) << "no thread does that";
}

TEST(Descriptor, WhatIsNoDeviceIsClosedAtOnce) {
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  const int number = memory.Get();
  CloseDevice(std::move(memory));
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
  CloseDevice(UniqueFd());
}

// A TCP socket whose close waits until all was read, or the reader is gone: as a file of FUSE waits for its server.
struct Lingering {
  explicit Lingering(int listener, const sockaddr_in& address) : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    const linger forever{.l_onoff = 1, .l_linger = 3600};
    const int small = 4096;
    setsockopt(socket.Get(), SOL_SOCKET, SO_LINGER, &forever, sizeof forever);
    setsockopt(socket.Get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    EXPECT_EQ(connect(socket.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    reader.Reset(accept(listener, nullptr, nullptr));
    const std::string bytes(4096, 'x');
    while (send(socket.Get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
  UniqueFd socket, reader;
};

TEST(Descriptor, OnlySoManyMayWait) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof address;
  const int small = 4096;  // what is accepted has it, too
  setsockopt(listener.Get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  ASSERT_EQ(bind(listener.Get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(getsockname(listener.Get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  ASSERT_EQ(listen(listener.Get(), kMostClosers), 0);
  std::vector<UniqueFd> readers;
  while (readers.size() < kMostClosers) {
    EXPECT_FALSE(CanCloseNoMore());
    Lingering one(listener.Get(), address);
    CloseElsewhere(std::move(one.socket));
    readers.push_back(std::move(one.reader));
  }
  EXPECT_TRUE(CanCloseNoMore());
  const int more = eventfd(0, EFD_CLOEXEC);
  CloseElsewhere(UniqueFd(more));
  EXPECT_TRUE(IsPrompt(more)) << "it stays open";
  close(more);
  readers.clear();
  while (CanCloseNoMore()) std::this_thread::yield();
}

}  // namespace
}  // namespace tessera
