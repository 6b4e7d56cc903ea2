#include "cli/launch/kernel_gate.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>

#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"
#include "wire/protocol.h"

namespace tessera::cli {
namespace {

// One packet of the program, as the daemon gets it.
struct Received {
  wire::Header header;
  std::byte bytes[wire::kMaxMessageBytes];
  ssize_t length = 0;
  UniqueFd fd;

  template <typename Body>
  std::optional<Body> As() const {
    return wire::ReadBody<Body>(header, {bytes, static_cast<std::size_t>(length)});
  }
};

// The daemon's side of the conversation with one program, on <run_dir>/client.sock.
class FakeDaemon {
 public:
  using Conversation = std::function<void(FakeDaemon&)>;

  explicit FakeDaemon(Conversation conversation) {
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    (run_dir_.path() + "/client.sock").copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(listener_.Get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.Get(), 1), 0);
    thread_ = std::thread([this, conversation = std::move(conversation)] {
      peer_ = UniqueFd(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC));
      conversation(*this);
      peer_.Reset();
    });
  }
  ~FakeDaemon() { thread_.join(); }

  const std::string& run_dir() const { return run_dir_.path(); }

  Received Receive() {
    Received received;
    received.length = ReceivePacket(peer_.Get(), received.bytes, &received.fd);
    EXPECT_EQ(wire::ReadHeader({received.bytes, static_cast<std::size_t>(std::max<ssize_t>(received.length, 0))},
                               received.header),
              wire::Fault::kNone);
    return received;
  }
  template <typename Body>
  void Send(const Body& body) {
    EXPECT_TRUE(SendPacket(peer_.Get(), wire::BytesOf(wire::Make(body))));
  }
  void Refuse(int code, std::string_view text) {
    wire::Refused refused{.code = code};
    wire::SetText(refused.text, text);
    Send(refused);
  }

 private:
  const TemporaryFolder run_dir_;
  UniqueFd listener_, peer_;
  std::thread thread_;
};

// In place of the filter: a pair of sockets, one of which is the listener. Counts how often it was installed.
struct FakeFilter {
  int installed = 0;
  UniqueFd other_end;

  std::function<Result<UniqueFd>()> Install() {
    return [this]() -> Result<UniqueFd> {
      ++installed;
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return FailErrno("no sockets");
      other_end = UniqueFd(ends[1]);
      return UniqueFd(ends[0]);
    };
  }
};

Result<void> Enter(const FakeDaemon& daemon, FakeFilter& filter, std::vector<std::string> vgpus = {"a", "b"}) {
  return EnterKernelGate({.run_dir = daemon.run_dir(), .vgpus = std::move(vgpus), .name = "python"}, filter.Install());
}

TEST(KernelGate, TheDaemonHasTheListenerWhenWeReturn) {
  UniqueFd listener;
  FakeFilter filter;
  {
    FakeDaemon daemon([&](FakeDaemon& daemon) {
      const auto guard = daemon.Receive().As<wire::Guard>();
      ASSERT_TRUE(guard);
      EXPECT_EQ(wire::TextOf(guard->vgpus), "a,b");
      EXPECT_EQ(wire::TextOf(guard->program), "python");
      EXPECT_EQ(filter.installed, 0);  // not before the daemon agrees
      daemon.Send(wire::Welcome{});
      Received second = daemon.Receive();
      EXPECT_TRUE(second.As<wire::Listener>());
      listener = std::move(second.fd);
      daemon.Send(wire::Welcome{});
    });
    const auto entered = Enter(daemon, filter);
    EXPECT_TRUE(entered) << entered.error().Text();
    EXPECT_EQ(filter.installed, 1);
  }
  ASSERT_TRUE(listener);
  const std::byte call[] = {std::byte{1}};
  std::byte seen[1];
  EXPECT_TRUE(SendPacket(filter.other_end.Get(), call));
  EXPECT_EQ(ReceivePacket(listener.Get(), seen), 1);
  // The daemon's is the only one left: with one of its own, the program would never see that the daemon is gone.
  listener.Reset();
  EXPECT_FALSE(SendPacket(filter.other_end.Get(), call));
  EXPECT_EQ(errno, EPIPE);
}

TEST(KernelGate, ARefusalComesBeforeTheFilter) {
  FakeFilter filter;
  FakeDaemon daemon([](FakeDaemon& daemon) {
    daemon.Receive();
    daemon.Refuse(EACCES, "vGPU a is another user's; make one of your own");
  });
  const auto entered = Enter(daemon, filter);
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, EACCES);
  EXPECT_EQ(entered.error().Text(), "vGPU a is another user's; make one of your own");
  EXPECT_EQ(filter.installed, 0);
}

TEST(KernelGate, ARefusedListenerIsAnError) {
  FakeFilter filter;
  FakeDaemon daemon([](FakeDaemon& daemon) {
    daemon.Receive();
    daemon.Send(wire::Welcome{});
    daemon.Receive();
    daemon.Refuse(EMFILE, "no descriptor is left");
  });
  const auto entered = Enter(daemon, filter);
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, EMFILE);
}

TEST(KernelGate, AFilterThatCannotBeIsTold) {
  FakeDaemon daemon([](FakeDaemon& daemon) {
    daemon.Receive();
    daemon.Send(wire::Welcome{});
  });
  const auto entered = EnterKernelGate({.run_dir = daemon.run_dir(), .vgpus = {"a"}, .name = "x"},
                                       [] { return Result<UniqueFd>(Fail(EBUSY, "there is a listener already")); });
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, EBUSY);
}

TEST(KernelGate, ADaemonThatDoesNotKnowIt) {
  FakeFilter filter;
  for (const bool nonsense : {false, true}) {
    FakeDaemon daemon([nonsense](FakeDaemon& daemon) {
      daemon.Receive();
      if (nonsense) daemon.Send(wire::Idle{});
    });
    const auto entered = Enter(daemon, filter);
    ASSERT_FALSE(entered);
    EXPECT_EQ(entered.error().code, nonsense ? EPROTO : ECONNRESET);
    EXPECT_FALSE(entered.error().hint.empty());
  }
  EXPECT_EQ(filter.installed, 0);
}

TEST(KernelGate, NobodyThere) {
  FakeFilter filter;
  const auto entered = EnterKernelGate({.run_dir = "/tmp/no-such-folder-of-tessera", .vgpus = {"a"}}, filter.Install());
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, ECONNREFUSED);
  EXPECT_NE(entered.error().message.find("/tmp/no-such-folder-of-tessera/client.sock"), std::string::npos);
}

TEST(KernelGate, NamesThatDoNotFitAreNotCut) {
  FakeFilter filter;
  const std::vector<std::string> vgpus(9, std::string(63, 'a'));
  const auto entered = EnterKernelGate({.run_dir = "/tmp", .vgpus = vgpus}, filter.Install());
  ASSERT_FALSE(entered);
  EXPECT_EQ(entered.error().code, E2BIG);
  EXPECT_EQ(filter.installed, 0);
}

}  // namespace
}  // namespace tessera::cli
