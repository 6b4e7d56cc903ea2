#include "mover/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace tessera::mover {
namespace {

TEST(Descriptor, DevicesAndMemoryArePrompt) {
  EXPECT_TRUE(IsPrompt(UniqueFd(open("/dev/null", O_RDWR)).Get()));
  EXPECT_TRUE(IsPrompt(UniqueFd(memfd_create("test", MFD_CLOEXEC)).Get()));
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

}  // namespace
}  // namespace tessera::mover
