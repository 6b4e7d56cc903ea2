// docs/protocol.md over real sockets, as a program sees it.
#include "server/clients/session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <future>

#include "base/descriptor.h"
#include "base/seqpacket.h"
#include "base/size.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {
namespace {

using testing::HasSubstr;
using wire::GateOrder;

const wire::Uuid kGpu = FakeDriver::UuidOf(0);

std::string Text(const wire::Refused& refused) { return std::string(wire::TextOf(refused.text)); }

TEST(SessionTest, FromHelloToIdle) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "4G"});
  FakeClient client(daemon.RunDir());
  const auto welcome = client.Hello("a");
  EXPECT_GT(welcome.session, 0u);
  EXPECT_EQ(welcome.grace_ns, 30 * kSecond);
  EXPECT_EQ(welcome.block_on_loss, 0u);
  const auto attached = client.Attach(kGpu);
  EXPECT_EQ(wire::TextOf(attached.vgpu), "a");
  EXPECT_EQ(attached.context_bytes, FakeDriver::kContext);
  EXPECT_EQ(client.Page().magic, wire::kPageMagic);
  EXPECT_EQ(client.Page().version, wire::kProtocolVersion);
  EXPECT_EQ(client.Page().memory_max.load(), 4 * kGiB);
  EXPECT_EQ(client.Page().gate.load(), GateOrder::kClosed);

  ASSERT_TRUE(client.TakeToken());
  EXPECT_EQ(daemon.Report("a").state, std::string("running"));
  client.Send(wire::Idle{MonotonicNow()});
  client.Query(kGpu);
  EXPECT_EQ(daemon.Report("a").state, std::string("idle"));
  EXPECT_GT(daemon.Report("a").compute_busy_us, 0);
}

TEST(SessionTest, TwoProgramsTakeTurns) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  daemon.Make({.name = "b"});
  FakeClient a = daemon.Connect("a"), b = daemon.Connect("b");
  ASSERT_TRUE(a.TakeToken());
  auto* holder = &a;
  auto* other = &b;
  for (int turn = 0; turn < 6; ++turn) {
    const std::uint32_t before = other->Epoch();
    other->Send(wire::Wants{});
    while (holder->Page().gate.load() != GateOrder::kClosed) ASSERT_TRUE(holder->WaitForOrder(holder->Epoch()));
    EXPECT_EQ(other->Epoch(), before) << "two tokens at once";
    holder->Send(wire::Released{.drained_at = MonotonicNow(), .epoch = holder->Epoch()});
    ASSERT_TRUE(other->WaitForOrder(before));
    EXPECT_NE(other->Page().gate.load(), GateOrder::kClosed);
    std::swap(holder, other);
  }
}

TEST(SessionTest, ASecondAttachGetsTheSamePage) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient client = daemon.Connect("a");
  client.Page().submissions.store(42);
  client.Attach(kGpu);
  EXPECT_EQ(client.Page().submissions.load(), 42u);
  EXPECT_EQ(daemon.Report("a").processes.size(), 1u);
}

TEST(SessionTest, HelloIsRefusedInWords) {
  TestDaemon daemon({.gpus = 2});
  daemon.Make({.name = "a"});
  daemon.Make({.name = "b"});
  daemon.Make({.name = "c", .gpu = "1"});
  FakeClient client(daemon.RunDir());
  auto refused = client.HelloRefused("nobody");
  EXPECT_EQ(refused.code, ENOENT);
  EXPECT_THAT(Text(refused), HasSubstr("there is no vGPU nobody"));
  EXPECT_EQ(client.HelloRefused("").code, EINVAL);
  refused = client.HelloRefused("a,a");
  EXPECT_EQ(refused.code, EINVAL);
  EXPECT_THAT(Text(refused), HasSubstr("same GPU"));
  client.Hello("a,c");
}

TEST(SessionTest, AVGpuBelongsToWhoMadeIt) {
  const Authority authority({.daemon = 0});
  const auto may_join = [&](const VGpuSpec& spec, uid_t uid) {
    const Possession vgpu = PossessionOf(spec);
    return authority.Allowed(authority.Identify(uid, {}), Operation::kJoinVGpu, &vgpu).has_value();
  };
  EXPECT_TRUE(may_join({.uid = 1000}, 1000));
  EXPECT_FALSE(may_join({.uid = 1000}, 1001));
  EXPECT_TRUE(may_join({.uid = 1000}, 0));
  EXPECT_TRUE(may_join({.uid = 0}, 1001));
  EXPECT_FALSE(may_join({.uid = 0, .ephemeral = true}, 1001));
}

TEST(SessionTest, AQueryShowsNobodyTheProcessesOfOthersInAVGpuForEverybody) {
  VGpu vgpu;
  vgpu.spec = {.name = "all", .uid = 0};
  Process own(std::move(*SharedPage::Create(0)), 1), other(std::move(*SharedPage::Create(0)), 2);
  own.who.uid = 1000;
  other.who.uid = 1001;
  for (Process* process : {&own, &other}) {
    process->vgpu = &vgpu;
    vgpu.processes.push_back(process);
  }
  const auto seen = [&](uid_t uid, bool users = true) {
    const Authority authority({.daemon = 0, .users = users});
    std::vector<pid_t> pids;
    for (const Process* process : SeenBy(authority, authority.Identify(uid, {}), vgpu)) pids.push_back(process->pid);
    return pids;
  };
  EXPECT_THAT(seen(1000), testing::ElementsAre(1));
  EXPECT_THAT(seen(1001, /*users=*/false), testing::ElementsAre(2)) << "programs see their user's";
  EXPECT_THAT(seen(1002), testing::IsEmpty());
  EXPECT_THAT(seen(0), testing::ElementsAre(1, 2));
  vgpu.spec.uid = 1001;
  EXPECT_THAT(seen(1001), testing::ElementsAre(1, 2)) << "its owner sees all";
}

TEST(SessionTest, AttachNeedsAVGpuOnThatGpu) {
  TestDaemon daemon({.gpus = 2});
  daemon.Make({.name = "a", .gpu = "0"});
  FakeClient client(daemon.RunDir());
  client.Hello("a");
  EXPECT_EQ(client.AttachRefused(FakeDriver::UuidOf(1)).code, ENODEV);
  EXPECT_EQ(client.AttachRefused({}).code, ENODEV);
  client.Attach(FakeDriver::UuidOf(0));
}

TEST(SessionTest, AProgramMayUseAVGpuOnEachGpu) {
  TestDaemon daemon({.gpus = 2});
  daemon.Make({.name = "a", .gpu = "0", .memory_limit = "1G"});
  daemon.Make({.name = "b", .gpu = "1", .memory_limit = "2G"});
  FakeClient client(daemon.RunDir());
  client.Hello("a,b");
  EXPECT_EQ(wire::TextOf(client.Attach(FakeDriver::UuidOf(0)).vgpu), "a");
  EXPECT_EQ(wire::TextOf(client.Attach(FakeDriver::UuidOf(1)).vgpu), "b");
  EXPECT_EQ(client.Page().gpu, 1u);
  EXPECT_EQ(client.Reserve(2 * kGiB, 1).bytes, 2 * kGiB);
  EXPECT_EQ(client.Reserve(2 * kGiB, 0).bytes, 0u);
}

TEST(SessionTest, MemoryIsGivenUpToTheLimit) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  FakeClient client = daemon.Connect("a");
  EXPECT_EQ(client.MakeContext().bytes, FakeDriver::kContext);
  const auto reserved = client.Reserve(900 * kMiB);
  EXPECT_EQ(reserved.bytes, 900 * kMiB);
  EXPECT_EQ(reserved.available, 24 * kMiB);
  EXPECT_EQ(client.Reserve(25 * kMiB).bytes, 0u);
  EXPECT_EQ(daemon.Report("a").oom_events, 1u);
  client.Send(wire::Return{100 * kMiB});
  client.Send(wire::Context{.delta = -1});
  EXPECT_EQ(client.Reserve(224 * kMiB).bytes, 224 * kMiB);
}

TEST(SessionTest, AReturnThatIsOnItsWaySparesASiblingItsRefusal) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  FakeClient one = daemon.Connect("a"), two = daemon.Connect("a");
  ASSERT_EQ(one.Reserve(kGiB).bytes, kGiB);
  one.Send(wire::Return{kGiB});
  EXPECT_EQ(two.Reserve(kGiB).bytes, kGiB);
}

TEST(SessionTest, QueryShowsTheVGpuToObserversToo) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  FakeClient client = daemon.Connect("a");
  ASSERT_EQ(client.Reserve(300 * kMiB).bytes, 300 * kMiB);
  FakeClient observer(daemon.RunDir());
  observer.Hello("a", /*observer=*/true);
  const auto view = observer.Query(kGpu);
  EXPECT_EQ(view.memory_max, kGiB);
  EXPECT_EQ(view.memory_used, 300 * kMiB);
  ASSERT_EQ(view.processes, 1u);
  EXPECT_EQ(view.process[0].pid, getpid());
  EXPECT_EQ(view.process[0].memory_bytes, 300 * kMiB);
  EXPECT_EQ(daemon.Report("a").processes.size(), 1u);
}

// Descriptors that can be told apart, in place of chunks' memory.
std::vector<int> MakeFiles(std::size_t count) {
  std::vector<int> files;
  while (files.size() < count) {
    files.push_back(memfd_create("chunk", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(files.back(), static_cast<off_t>(files.size())), 0);
  }
  return files;
}

std::size_t SizeOf(const UniqueFd& file) {
  struct stat status{};
  EXPECT_EQ(fstat(file.Get(), &status), 0);
  return static_cast<std::size_t>(status.st_size);
}

constexpr wire::Export kTwenty{
    .key = {{1, 2, 3}}, .bytes = 600 * kMiB, .offset = 7 * kMiB, .chunk_bytes = 32 * kMiB, .chunks = 20};

// From the first moment on: its memory must not be moved as if it had nothing to do.
TEST(SessionTest, WhoComesWithWorkUnderWayCountsAsWorking) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient client(daemon.RunDir());
  client.Hello("a");
  client.Attach(kGpu, 0, 1, true);
  EXPECT_EQ(daemon.Report("a").state, std::string("running"));
  EXPECT_EQ(client.Page().gate.load(), GateOrder::kOpen);
}

TEST(SessionTest, MemoryForOthersGoesFromProgramToProgram) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  daemon.Make({.name = "b"});
  FakeClient exporter = daemon.Connect("a"), importer = daemon.Connect("b");
  const auto files = MakeFiles(20);
  wire::Export part = kTwenty;
  exporter.Export(part, std::span(files).first(16));
  EXPECT_EQ(importer.ImportRefused({.key = part.key}).code, ENOENT);  // not all of it is there
  part.first = 16;
  exporter.Export(part, std::span(files).subspan(16));
  for (const int file : files) close(file);
  EXPECT_EQ(daemon.Report("a").processes.size(), 1u);

  std::vector<UniqueFd> came;
  const auto imported = importer.Import({.key = part.key}, &came);
  EXPECT_EQ(imported.count, 16u);
  EXPECT_EQ(imported.chunks, 20u);
  EXPECT_EQ(imported.bytes, 600 * kMiB);
  EXPECT_EQ(imported.offset, 7 * kMiB);
  EXPECT_EQ(imported.chunk_bytes, 32 * kMiB);
  EXPECT_EQ(importer.Import({.key = part.key, .first = 16}, &came).count, 4u);
  ASSERT_EQ(came.size(), 20u);
  for (std::size_t n = 0; n < came.size(); ++n) EXPECT_EQ(SizeOf(came[n]), n + 1);
  EXPECT_EQ(importer.ImportRefused({.key = part.key, .first = 20}).code, EINVAL);

  importer.Unexport(part.key);  // not its own to end
  EXPECT_EQ(importer.Import({.key = part.key}, &came).count, 16u);
  exporter.Unexport(part.key);
  EXPECT_EQ(importer.ImportRefused({.key = part.key}).code, ENOENT);
}

TEST(SessionTest, MemoryForOthersGoesWithItsProgram) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient importer = daemon.Connect("a");
  {
    FakeClient exporter = daemon.Connect("a");
    const auto files = MakeFiles(16);
    wire::Export part = kTwenty;
    part.chunks = 16;
    part.bytes = 500 * kMiB;
    exporter.Export(part, files);
    for (const int file : files) close(file);
    std::vector<UniqueFd> came;
    EXPECT_EQ(importer.Import({.key = part.key}, &came).count, 16u);
  }
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").processes.size() == 1; }));
  const auto refused = importer.ImportRefused({.key = kTwenty.key});
  EXPECT_EQ(refused.code, ENOENT);
  EXPECT_THAT(Text(refused), HasSubstr("has its program ended"));
}

TEST(SessionTest, MemoryOfAGpuIsForProgramsWithAVGpuThere) {
  TestDaemon daemon({.gpus = 2});
  daemon.Make({.name = "a", .gpu = "0"});
  daemon.Make({.name = "b", .gpu = "1"});
  FakeClient exporter = daemon.Connect("a", 0), other = daemon.Connect("b", 1), both(daemon.RunDir());
  both.Hello("a,b");
  both.Attach(FakeDriver::UuidOf(0));
  both.Attach(FakeDriver::UuidOf(1));
  const auto files = MakeFiles(1);
  const wire::Export part{.key = {{5}}, .bytes = 100, .chunk_bytes = 2 * kMiB, .chunks = 1};
  exporter.Export(part, files);
  close(files[0]);
  EXPECT_EQ(other.ImportRefused({.key = part.key}, 1).code, EACCES);
  std::vector<UniqueFd> came;
  EXPECT_EQ(both.Import({.key = part.key}, &came, 1).count, 1u);  // as a peer

  FakeClient first_there(daemon.RunDir());
  first_there.Hello("a,b");
  first_there.Attach(FakeDriver::UuidOf(1));
  const auto imported = first_there.Import({.key = part.key}, &came, 1);
  EXPECT_EQ(imported.count, 1u) << "it has not used the memory's GPU yet";
  EXPECT_EQ(imported.gpu, FakeDriver::UuidOf(0));
}

// Closing a file of a FUSE file system waits for that file system. A pipe stands for it here: it is not memory either.
TEST(SessionTest, AFileThatIsNoMemoryEndsItsConnectionAndNoOther) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient client = daemon.Connect("a"), other = daemon.Connect("a"), stranger(daemon.RunDir());
  for (const FakeClient* sender : {&client, &stranger}) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd read_end(ends[0]), write_end(ends[1]);
    const wire::Export part{.key = {{5}}, .bytes = 100, .chunk_bytes = 2 * kMiB, .chunks = 1};
    ASSERT_TRUE(SendPacket(sender->Socket(), wire::BytesOf(wire::Make(part, 0)), write_end.Get()));
  }
  EXPECT_TRUE(client.ReadsEnd());
  EXPECT_TRUE(stranger.ReadsEnd());
  EXPECT_EQ(other.Reserve(kMiB).bytes, kMiB);
}

TEST(SessionTest, AnExportThatCannotBeIsRefusedAndNothingElseHappens) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient client = daemon.Connect("a");
  EXPECT_EQ(client.ExportRefused(kTwenty).code, EINVAL);  // without descriptors
  EXPECT_EQ(client.Reserve(kMiB).bytes, kMiB);
}

TEST(SessionTest, AClosedSocketGivesEverythingBack) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  daemon.Make({.name = "b"});
  FakeClient holder = daemon.Connect("a"), waiting = daemon.Connect("b");
  ASSERT_EQ(holder.Reserve(kGiB).bytes, kGiB);
  ASSERT_TRUE(holder.TakeToken());
  holder.Disconnect();
  EXPECT_TRUE(waiting.TakeToken());
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").memory_current == 0; }));
  EXPECT_TRUE(daemon.Report("a").processes.empty());
}

TEST(SessionTest, AKilledHolderIsGoneThoughItsChildHoldsItsSocket) {
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  daemon.Make({.name = "b"});
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t program = fork();
  if (program == 0) {
    FakeClient holder = daemon.Connect("a");
    holder.Reserve(kGiB);
    holder.TakeToken();
    const pid_t child = fork();
    if (child != 0) {
      if (write(ready[1], &child, sizeof child) < 0) _exit(1);
    }
    for (;;) pause();
  }
  pid_t child = 0;
  ASSERT_EQ(read(ready[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  FakeClient waiting = daemon.Connect("b");
  kill(program, SIGKILL);
  EXPECT_TRUE(waiting.TakeToken());
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").memory_current == 0; }));
  kill(child, SIGKILL);
  waitpid(program, nullptr, 0);
}

// Its pid may be another's by then, and all that is known of a program is found by its pid.
TEST(SessionTest, WhoIsDeadWhenItsConnectionIsAcceptedIsNotServed) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  std::promise<void> held, go;
  daemon.Loop().Post([&] {
    held.set_value();
    go.get_future().wait();
  });
  held.get_future().wait();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[0]), childs(ends[1]);
  const pid_t program = fork();
  if (program == 0) {
    const UniqueFd socket = ConnectSeqpacket((daemon.RunDir() + "/client.sock").c_str());
    const std::array<std::byte, 1> byte{};
    SendPacket(childs.Get(), byte, socket.Get());
    _exit(0);
  }
  std::array<std::byte, wire::kMaxMessageBytes> buffer;
  UniqueFd socket;
  ASSERT_EQ(ReceivePacket(ours.Get(), buffer, &socket), 1);
  ASSERT_EQ(waitpid(program, nullptr, 0), program);
  wire::Hello hello{.pid = program};
  wire::SetText(hello.vgpus, "a");
  SendPacket(socket.Get(), wire::BytesOf(wire::Make(hello)));
  go.set_value();
  EXPECT_LE(ReceivePacket(socket.Get(), buffer), 0) << "it was welcomed";
}

TEST(SessionTest, GarbageEndsItsConnectionAndNoOther) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient good = daemon.Connect("a");
  const auto sends = [&](auto&& speak) {
    FakeClient bad(daemon.RunDir());
    speak(bad);
    EXPECT_TRUE(bad.ReadsEnd());
  };
  const auto bytes = [](const char* text) { return std::as_bytes(std::span(text, strlen(text))); };
  sends([&](FakeClient& bad) { bad.SendBytes(bytes("short")); });
  sends([&](FakeClient& bad) { bad.SendBytes(bytes("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); });
  sends([&](FakeClient& bad) { bad.SendBytes(std::vector<std::byte>(3 * wire::kMaxMessageBytes)); });
  sends([&](FakeClient& bad) { bad.Send(wire::Wants{}); });  // before Hello
  sends([&](FakeClient& bad) {
    bad.Hello("a");
    bad.Send(wire::Wants{});  // before Attach
  });
  sends([&](FakeClient& bad) {
    bad.Hello("a");
    bad.Send(wire::Hello{});
  });
  sends([&](FakeClient& bad) {
    bad.Hello("a", /*observer=*/true);
    bad.Send(wire::Attach{kGpu});
  });
  const auto attached = [&](auto&& speak) {
    sends([&](FakeClient& bad) {
      bad.Hello("a");
      bad.Attach(kGpu);
      speak(bad);
    });
  };
  attached([](FakeClient& bad) { bad.Send(wire::Wants{}, 7); });
  attached([](FakeClient& bad) { bad.Send(wire::Context{.delta = 2}); });
  attached([](FakeClient& bad) { bad.Send(wire::Welcome{}); });
  attached([](FakeClient& bad) {
    auto message = wire::Make(wire::Reserve{1});
    message.header.type = wire::Type::kIdle;  // the right length for another type
    message.header.type = static_cast<wire::Type>(99);
    bad.SendBytes(wire::BytesOf(message));
  });
  attached([](FakeClient& bad) {
    const auto message = wire::Make(wire::Released{});
    bad.SendBytes(wire::BytesOf(message).first(20));  // truncated
  });
  EXPECT_TRUE(good.TakeToken());
}

TEST(SessionTest, AnotherVersionIsToldBoth) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient client(daemon.RunDir());
  auto message = wire::Make(wire::Hello{});
  message.header.version = 77;
  client.SendBytes(wire::BytesOf(message));
  const auto refused = client.ReadRefused();
  EXPECT_EQ(refused.code, EPROTO);
  EXPECT_THAT(Text(refused), HasSubstr("version 77"));
  EXPECT_THAT(Text(refused), HasSubstr("speaks " + std::to_string(wire::kProtocolVersion)));
  EXPECT_TRUE(client.ReadsEnd());
}

TEST(SessionTest, WhoDoesNotReadItsRepliesIsClosed) {
  TestDaemon daemon;
  daemon.Make({.name = "a"});
  FakeClient client = daemon.Connect("a");
  while (client.Send(wire::Query{kGpu})) {
  }
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").processes.empty(); }));
}

TEST(SessionTest, ThreeHundredProgramsAtOnce) {
  RaiseDescriptorLimit();
  TestDaemon daemon;
  daemon.Make({.name = "a", .memory_limit = "1G"});
  std::vector<FakeClient> clients;
  for (int n = 0; n < 300; ++n) {
    clients.emplace_back(daemon.RunDir());
    wire::Hello hello;
    wire::SetText(hello.vgpus, "a");
    clients.back().Send(hello);
    clients.back().Send(wire::Attach{kGpu});
  }
  EXPECT_TRUE(daemon.Eventually([&] { return daemon.Report("a").processes.size() == 300; }));
  EXPECT_EQ(daemon.Connect("a").Query(kGpu).processes, 256u);
}

TEST(SessionTest, APageCannotBeShrunk) {
  auto page = SharedPage::Create(3);
  ASSERT_TRUE(page);
  EXPECT_EQ((*page)->gpu, 3u);
  EXPECT_NE(ftruncate(page->Fd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

}  // namespace
}  // namespace tessera::server
