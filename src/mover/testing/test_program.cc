#include "mover/testing/test_program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/seqpacket.h"

namespace tessera::mover {

using namespace cuda;  // NOLINT: the driver's own names

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;
using wire::MoverMessage;
using wire::MoverType;

#define MUST(call) EXPECT_EQ(call, CUDA_SUCCESS) << #call

namespace {

constexpr char kSoftState[] = "/dev/shm/tessera-soft-";

CUmemAllocationProp OnDevice(CUdevice device) {
  return {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
          .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
          .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

CUmemGenericAllocationHandle Import(const TestDriver& driver, int fd) {
  CUmemGenericAllocationHandle handle = 0;
  MUST(driver.cuda.MemImport(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return handle;
}

constexpr std::size_t kPageBytes = 4096;
// Every so many pages one has something in it; the others are zeros, which take no memory of a soft GPU.
constexpr std::size_t kMarked = 16;

// The words of a chunk: the first one of a marked page tells it from all others. Valid until the next call.
std::span<const std::uint64_t> Content(std::uint64_t seed, std::uint64_t chunk) {
  static std::vector<std::uint64_t> words(kChunkBytes / sizeof(std::uint64_t));
  std::uint64_t value = seed << 48 | chunk << 32;
  for (std::size_t i = 0; i < words.size(); i += kMarked * kPageBytes / sizeof(std::uint64_t)) words[i] = value++;
  return words;
}

}  // namespace

// ---- the driver ----

const TestDriver& TestDriver::Get() {
  static const TestDriver& driver = *[] {
    const std::string name = "mover-test-" + std::to_string(getpid());
    setenv("TESSERA_SOFT", "2GiB,context=8MiB,pcie=40GB/s", 1);
    setenv("TESSERA_SOFT_NAME", name.c_str(), 1);
    std::atexit(
        [] { unlink((kSoftState + std::to_string(geteuid()) + "-mover-test-" + std::to_string(getpid())).c_str()); });
    const char* library = std::getenv("TESSERA_TEST_LIBCUDA");
    setenv("TESSERA_REAL_LIBCUDA", library != nullptr ? library : TESSERA_SOFT_LIBRARY, 1);
    auto* made = new TestDriver{.cuda = CudaLibrary::Load("").value()};
    void* const file = dlopen(std::getenv("TESSERA_REAL_LIBCUDA"), RTLD_NOW);
    made->copy_rows = reinterpret_cast<decltype(made->copy_rows)>(dlsym(file, "cuMemcpy2D_v2"));
    made->copy_out = reinterpret_cast<decltype(made->copy_out)>(dlsym(file, "cuMemcpyDtoH_v2"));
    CUcontext context = nullptr;
    CUuuid uuid;
    MUST(made->cuda.Init(0));
    MUST(made->cuda.DeviceGet(&made->device, 0));
    MUST(made->cuda.PrimaryCtxRetain(&context, made->device));
    MUST(made->cuda.CtxSetCurrent(context));
    MUST(made->cuda.DeviceGetUuid(&uuid, made->device));
    made->uuid = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                    static_cast<unsigned char>(uuid.bytes[i]));
      made->uuid += hex;
    }
    return made;
  }();
  return driver;
}

CUmemGenericAllocationHandle TestDriver::MakeChunk(std::uint64_t bytes) const {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = OnDevice(device);
  MUST(cuda.MemCreate(&handle, bytes, &properties, 0));
  return handle;
}

UniqueFd TestDriver::Export(CUmemGenericAllocationHandle handle) const {
  int fd = -1;
  MUST(cuda.MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return UniqueFd(fd);
}

// ---- the program ----

TestProgram::TestProgram(int chunks, std::uint64_t seed) : seed_(seed) {
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(chunks); ++i) {
    Chunk& chunk = chunks_[1000 + i];
    MUST(driver_.cuda.MemAddressReserve(&chunk.address, kChunkBytes, 0, 0, 0));
    Map(chunk, MakeMemory(wire::kAllUnits));
    CUDA_MEMCPY2D marked{};
    marked.srcMemoryType = CU_MEMORYTYPE_HOST;
    marked.srcHost = Content(seed_, 1000 + i).data();
    marked.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    marked.dstDevice = chunk.address;
    marked.srcPitch = marked.dstPitch = kMarked * kPageBytes;
    marked.WidthInBytes = kPageBytes;
    marked.Height = kChunkBytes / marked.srcPitch;
    MUST(driver_.copy_rows(&marked));
  }
}

TestProgram::~TestProgram() {
  for (auto& [name, chunk] : chunks_) {
    LeaveOut(chunk);
    if (!chunk.file) Unmap(chunk);
  }
}

TestProgram::Memory TestProgram::MakeMemory(wire::Units units) const {
  Memory memory{.units = units, .pieces = {}};
  if (memory.whole()) {
    memory.pieces.push_back(driver_.MakeChunk());
  } else {
    wire::ForEachRun(units, [&](std::uint32_t, std::uint32_t count) {
      memory.pieces.push_back(driver_.MakeChunk(count * wire::kUnitBytes));
    });
  }
  return memory;
}

void TestProgram::Release(Memory& memory) const {
  for (const auto piece : memory.pieces) MUST(driver_.cuda.MemRelease(piece));
  memory = {};
}

void TestProgram::LeaveOut(Chunk& chunk) {
  chunk.wanted = false;
  Release(chunk.coming);
}

void TestProgram::Map(Chunk& chunk, Memory memory) {
  chunk.memory = std::move(memory);
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, driver_.device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  auto piece = chunk.memory.pieces.begin();
  wire::ForEachRun(chunk.memory.units, [&](std::uint32_t first, std::uint32_t count) {
    const std::uint64_t begin = chunk.address + first * wire::kUnitBytes, run = count * wire::kUnitBytes;
    MUST(driver_.cuda.MemMap(begin, run, 0, *piece++, 0));
    MUST(driver_.cuda.MemSetAccess(begin, run, &access, 1));
  });
}

void TestProgram::Unmap(Chunk& chunk) {
  wire::ForEachRun(chunk.memory.units, [&](std::uint32_t first, std::uint32_t count) {
    MUST(driver_.cuda.MemUnmap(chunk.address + first * wire::kUnitBytes, count * wire::kUnitBytes));
  });
  Release(chunk.memory);
}

std::uint64_t TestProgram::OnGpu() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, chunk] : chunks_) bytes += chunk.out() ? 0 : wire::BytesOf(chunk.memory.units);
  return bytes;
}

UniqueFd TestProgram::NewLine() {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  line_.Reset(pair[0]);
  for (auto& [name, chunk] : chunks_) {
    chunk.offered = false;
    LeaveOut(chunk);
  }
  return UniqueFd(pair[1]);
}

void TestProgram::Send(LineMessage message, std::span<const int> fds) {
  (void)SendPacket(line_.Get(), BytesOf(message), fds);  // a mover that was killed takes nothing
}

bool TestProgram::Answer() {
  std::byte buffer[sizeof(LineMessage)];
  UniqueFd fds[kMostDescriptors];
  std::size_t received = 0;
  const ssize_t length = ReceivePacket(line_.Get(), buffer, fds, received);
  if (length <= 0) {
    line_.Reset();
    return false;
  }
  const auto message = wire::ReadLine(std::span(buffer, static_cast<std::size_t>(length)));
  EXPECT_TRUE(message.has_value());
  EXPECT_EQ(received, DescriptorsOf(*message));
  ++seen[message->type];
  if (const auto found = instead.find(message->type); found != instead.end()) {
    found->second(*message, std::span(fds).first(received));
    return true;
  }
  switch (message->type) {
    case LineType::kEvict:
    case LineType::kSqueeze:
      Offer(message->count);
      break;
    case LineType::kLoad:
      Want(message->count, message->room, message->holes);
      break;
    case LineType::kStored:
    case LineType::kLoaded:
      Take(*message, std::span(fds).first(received), message->type == LineType::kStored);
      break;
    case LineType::kKeep:
      for (std::uint32_t i = 0; i < message->count; ++i) chunks_.at(message->chunk[i]).offered = false;
      break;
    case LineType::kStay:
      for (std::uint32_t i = 0; i < message->count; ++i) LeaveOut(chunks_.at(message->chunk[i]));
      break;
    case LineType::kSettle:
      Send({.type = LineType::kSettled, .error = InFile() > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS});
      break;
    case LineType::kAdopted:
      for (std::uint32_t i = 0; i < message->count; ++i) {
        if (const auto found = chunks_.find(message->chunk[i]); found != chunks_.end() && found->second.host)
          found->second.key = message->key[i];
        ++(message->key[i] != 0 ? adopted : refused);
      }
      break;
    case LineType::kFiled:
      Release(*message);
      break;
    case LineType::kRead:
      Hold(*message, std::span(fds).first(received));
      break;
    default:
      ADD_FAILURE() << "the mover sent a message of type " << static_cast<int>(message->type);
  }
  return true;
}

// Names a chunk, and units of it that have this memory.
void TestProgram::Name(LineMessage& message, std::vector<UniqueFd>& fds, std::uint64_t name, const Memory& memory,
                       wire::Units units) const {
  message.chunk[message.count] = name;
  message.units[message.count] = units;
  if (!memory.whole()) message.begins[message.count] = wire::BeginsOfRuns(units);
  ++message.count;
  for (const auto piece : memory.pieces) fds.push_back(driver_.Export(piece));
}

// The first ones go first, and the first ones come back last.
void TestProgram::Offer(std::uint32_t count) {
  LineMessage offer = {.type = LineType::kOffer};
  std::vector<UniqueFd> owned;
  for (auto& [name, chunk] : chunks_) {
    if (offer.count == count || chunk.out() || chunk.offered) continue;
    chunk.offered = true;
    chunk.known = chunk.memory.whole() ? use_ : chunk.memory.units;
    Name(offer, owned, name, chunk.memory, chunk.known);
  }
  std::vector<int> fds;
  for (const UniqueFd& fd : owned) fds.push_back(fd.Get());
  Send(offer, fds);
}

void TestProgram::Want(std::uint32_t count, std::uint32_t room, std::uint32_t holes) {
  LineMessage want = {.type = LineType::kWant};
  std::vector<UniqueFd> owned;
  for (auto found = chunks_.rbegin(); found != chunks_.rend() && want.count < count; ++found) {
    Chunk& chunk = found->second;
    const std::uint32_t empty = wire::kUnitsPerChunk - wire::CountOf(chunk.known);
    const wire::Units units = empty <= holes ? wire::kAllUnits : chunk.known;
    if (!chunk.host || chunk.key == 0 || chunk.wanted || wire::CountOf(units) > room) continue;
    room -= wire::CountOf(units);
    if (units != chunk.known && holes != wire::kAnyHoles) holes -= empty;
    chunk.wanted = true;
    chunk.coming = MakeMemory(units);
    Name(want, owned, found->first, chunk.coming, chunk.known);
  }
  std::vector<int> fds;
  for (const UniqueFd& fd : owned) fds.push_back(fd.Get());
  Send(want, fds);
}

void TestProgram::Take(const LineMessage& message, std::span<UniqueFd> fds, bool stored) {
  const bool fails = stored ? freed_fails : taken_fails;
  for (std::uint32_t i = 0; i < message.count; ++i) {
    Chunk& chunk = chunks_.at(message.chunk[i]);
    (stored ? chunk.offered : chunk.wanted) = false;
    struct stat status = {};
    if (stored && fstat(fds[i].Get(), &status) == 0) host_memories_.push_back(status.st_ino);
    if (fails) {
      if (!stored) LeaveOut(chunk);
      continue;
    }
    Unmap(chunk);
    Map(chunk, stored ? Memory{wire::kAllUnits, {Import(driver_, fds[i].Get())}} : std::exchange(chunk.coming, {}));
    chunk.host = stored;
    chunk.key = stored ? message.key[i] : 0;
    EXPECT_EQ(stored, chunk.key != 0);
  }
  LineMessage answer = message;
  answer.type = stored ? LineType::kFreed : LineType::kTaken;
  answer.error = fails ? CUDA_ERROR_OUT_OF_MEMORY : 0;
  Send(answer);
}

void TestProgram::Release(const LineMessage& message) {
  for (std::uint32_t i = 0; i < message.count; ++i) {
    Chunk& chunk = chunks_.at(message.chunk[i]);
    EXPECT_TRUE(chunk.host && !chunk.wanted && message.key[i] != 0);
    Unmap(chunk);
    chunk.host = false;
    chunk.file = true;
    chunk.key = message.key[i];
  }
  LineMessage answer = message;
  answer.type = LineType::kReleased;
  Send(answer);
}

void TestProgram::Hold(const LineMessage& message, std::span<UniqueFd> fds) {
  for (std::uint32_t i = 0; i < message.count; ++i) {
    Chunk& chunk = chunks_.at(message.chunk[i]);
    EXPECT_TRUE(chunk.file && message.key[i] != 0);
    Map(chunk, {wire::kAllUnits, {Import(driver_, fds[i].Get())}});
    chunk.host = true;
    chunk.file = false;
    chunk.key = message.key[i];
  }
  LineMessage answer = message;
  answer.type = LineType::kHeld;
  Send(answer);
}

void TestProgram::Adopt() {
  for (const bool file : {true, false}) {
    LineMessage adopt = {.type = file ? LineType::kAdoptFiled : LineType::kAdopt};
    const LineMessage none = adopt;
    for (const auto& [name, chunk] : chunks_) {
      if (chunk.key == 0 || chunk.file != file) continue;
      adopt.chunk[adopt.count] = name;
      adopt.key[adopt.count++] = chunk.key;
      if (adopt.count == wire::kMostChunks) Send(std::exchange(adopt, none));
    }
    if (adopt.count > 0 || !file) Send(adopt);
  }
}

void TestProgram::Drop(std::uint64_t name) {
  LineMessage drop = {.type = LineType::kDropped, .count = 1};
  drop.chunk[0] = name;
  Send(drop);
  if (!chunks_.at(name).file) Unmap(chunks_.at(name));
  chunks_.erase(name);
}

std::size_t TestProgram::Out() const {
  return static_cast<std::size_t>(std::ranges::count_if(chunks_, [](const auto& each) { return each.second.out(); }));
}

std::size_t TestProgram::InFile() const {
  return static_cast<std::size_t>(std::ranges::count_if(chunks_, [](const auto& each) { return each.second.file; }));
}

bool TestProgram::IsIntact() const {
  static std::vector<std::uint64_t> words(kChunkBytes / sizeof(std::uint64_t));
  return std::ranges::all_of(chunks_, [&](const auto& each) {
    if (each.second.file) return true;  // nobody can tell
    const auto right = Content(seed_, each.first);
    bool same = true;
    wire::ForEachRun(each.second.known, [&](std::uint32_t first, std::uint32_t count) {
      const std::uint64_t at = first * wire::kUnitBytes, bytes = count * wire::kUnitBytes;
      MUST(driver_.copy_out(words.data(), each.second.address + at, bytes));
      same = same && std::memcmp(words.data(), right.data() + at / sizeof right[0], bytes) == 0;
    });
    return same;
  });
}

// ---- the mover's process ----

pid_t EndedProcess() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return child;
}

TestSlots::TestSlots(std::uint64_t chunks) : table(memfd_create("slots", MFD_CLOEXEC)) {
  EXPECT_EQ(ftruncate(table.Get(), static_cast<off_t>(chunks * wire::kTableEntryBytes)), 0);
}

TestFile::TestFile(std::uint64_t chunks)
    : file(memfd_create("swap", MFD_CLOEXEC)), table(memfd_create("table", MFD_CLOEXEC)) {
  EXPECT_EQ(ftruncate(file.Get(), static_cast<off_t>(chunks * kChunkBytes)), 0);
  EXPECT_EQ(ftruncate(table.Get(), static_cast<off_t>(chunks * wire::kTableEntryBytes)), 0);
}

TestMover::TestMover(const TestMoverSetup& setup) : slots_(setup.slots != nullptr ? *setup.slots : own_slots_) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  socket_.Reset(pair[0]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  std::vector<UniqueFd> inherited;  // as 3 and so on; here they have other numbers
  const auto pass = [&](int fd) {
    const int number = 3 + static_cast<int>(inherited.size());
    inherited.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 10));
    posix_spawn_file_actions_adddup2(&actions, inherited.back().Get(), number);
  };
  pass(pair[1]);
  close(pair[1]);
  pass(slots_.table.Get());
  if (setup.file != nullptr) {
    pass(setup.file->file.Get());
    pass(setup.file->table.Get());
  }
  const char* mover = std::getenv("TESSERA_TEST_MOVER");
  const auto& driver = TestDriver::Get();  // names the library to the mover, too
  std::vector<std::string> words = {mover != nullptr ? mover : TESSERA_MOVER, "--gpu",
                                    setup.gpu.empty() ? driver.uuid : setup.gpu, "--floor", setup.floor};
  if (setup.file != nullptr) words.emplace_back("--file");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  if (!setup.fault.empty()) setenv("TESSERA_FAULT", setup.fault.c_str(), 1);
  EXPECT_EQ(posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ), 0);
  unsetenv("TESSERA_FAULT");
  posix_spawn_file_actions_destroy(&actions);
  inherited.clear();  // or its end of the socket would be open when it is dead
  if (!slots_.kept.empty()) Until([&] { return Has(0, MoverType::kReady); });
  if (setup.wanted > 0 || setup.most > 0) Pool(setup.wanted, setup.most);
  if (setup.program != nullptr) Program(1, *setup.program, setup.domain);
}

TestMover::~TestMover() {
  socket_.Reset();
  if (pid_ > 0) Wait();
}

int TestMover::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return status;
}

void TestMover::Send(MoverMessage message, int fd) { (void)SendPacket(socket_.Get(), BytesOf(message), fd); }

void TestMover::Pool(std::uint64_t wanted, std::uint64_t most) {
  Send({.type = MoverType::kPool, .bytes = wanted * kChunkBytes, .other = most * kChunkBytes});
}

void TestMover::Program(std::uint64_t id, TestProgram& program, std::uint64_t domain) {
  const UniqueFd line = program.NewLine();
  Send({.type = MoverType::kProgram, .program = id, .bytes = static_cast<std::uint64_t>(program.pid), .other = domain},
       line.Get());
  programs_[id] = &program;
}

void TestMover::Forget(std::uint64_t id) {
  Send({.type = MoverType::kGone, .program = id});
  programs_.erase(id);
}

bool TestMover::Hear() {
  std::byte buffer[sizeof(MoverMessage)];
  UniqueFd fd;
  const ssize_t length = ReceivePacket(socket_.Get(), buffer, &fd);
  if (length <= 0) return false;
  const auto message = wire::ReadMover(std::span(buffer, static_cast<std::size_t>(length)));
  EXPECT_TRUE(message.has_value());
  if (message->type == MoverType::kSlotMade) {
    slots_.kept.insert_or_assign(message->bytes, std::move(fd));
    Send({.type = MoverType::kSlotKept, .bytes = message->bytes});
  }
  if (message->type == MoverType::kSlotGone) slots_.kept.erase(message->bytes);
  if (message->type == MoverType::kReady && !slots_.kept.empty()) {
    HandOver(0);
  } else if (message->type == MoverType::kSlotTaken) {
    HandOver(message->bytes);
  } else {
    last_[{message->program, message->type}] = *message;
  }
  return true;
}

// As the daemon does: it is ready when it has them all.
void TestMover::HandOver(std::uint64_t last) {
  const auto next = slots_.kept.upper_bound(last);
  if (next == slots_.kept.end()) {
    last_[{0, MoverType::kReady}] = {.type = MoverType::kReady};
  } else {
    Send({.type = MoverType::kSlot, .bytes = next->first}, next->second.Get());
  }
}

bool TestMover::Until(const std::function<bool()>& condition) {
  const Nanos limit = MonotonicNow() + 30 * kSecond;
  while (!condition()) {
    if (ended_ || MonotonicNow() > limit) return false;
    std::vector<pollfd> fds = {{.fd = socket_.Get(), .events = POLLIN}};
    std::vector<TestProgram*> talking;
    for (const auto& [id, program] : programs_) {
      if (program->line() < 0) continue;
      fds.push_back({.fd = program->line(), .events = POLLIN});
      talking.push_back(program);
    }
    poll(fds.data(), fds.size(), 100);
    for (std::size_t i = 0; i < talking.size(); ++i) {
      if (fds[i + 1].revents != 0) talking[i]->Answer();
    }
    if (fds[0].revents != 0) ended_ = !Hear();
  }
  return true;
}

MoverMessage TestMover::Await(std::uint64_t id, MoverType type) {
  EXPECT_TRUE(Until([&] { return Has(id, type); })) << "no message of type " << static_cast<int>(type);
  const MoverMessage message = Last(id, type);
  last_.erase({id, type});
  return message;
}

int TestMover::Settle(std::uint64_t id) {
  Send({.type = MoverType::kSettle, .program = id});
  return Await(id, MoverType::kSettled).error;
}

MoverMessage TestMover::Move(std::uint64_t id, MoverType type, std::uint64_t chunks) {
  Send({.type = type, .program = id, .bytes = chunks * kChunkBytes});
  return Await(id, type == MoverType::kEvict ? MoverType::kEvicted : MoverType::kLoaded);
}

MoverMessage TestMover::Last(std::uint64_t id, MoverType type) const {
  const auto found = last_.find({id, type});
  return found == last_.end() ? MoverMessage{} : found->second;
}

std::size_t TestMover::Descriptors() const {
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid_) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

}  // namespace tessera::mover
