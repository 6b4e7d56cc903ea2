#include "mover/testing/test_program.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/seqpacket.h"

namespace tessera::mover {

using namespace cuda;  // NOLINT: the driver's own names

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;

namespace {

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
  chunk.shown = 0;
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
    chunk.shown = 0;
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
      Offer(message->count, message->room);
      break;
    case LineType::kShow:
      Show(message->count, message->room);
      break;
    case LineType::kLoad:
      Want(message->count, message->room, message->holes);
      break;
    case LineType::kStored:
    case LineType::kStoredAway:
    case LineType::kLoaded:
      Take(*message, std::span(fds).first(received), message->type != LineType::kLoaded);
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
    case LineType::kPark:
      Send({.type = LineType::kParked, .room = static_cast<std::uint32_t>(Out() - InFile())});
      break;
    case LineType::kFiled:
      Release(*message);
      break;
    case LineType::kRead:
    case LineType::kReadAway:
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
void TestProgram::Offer(std::uint32_t count, std::uint32_t round) {
  LineMessage offer = {.type = LineType::kOffer};
  std::vector<UniqueFd> owned;
  for (auto& [name, chunk] : chunks_) {
    if (offer.count == count || chunk.out() || chunk.offered) continue;
    chunk.offered = true;
    chunk.known = chunk.memory.whole() ? use_ : chunk.memory.units;
    std::vector<UniqueFd> none;
    const bool shown = round != 0 && chunk.shown == round;
    Name(offer, shown ? none : owned, name, chunk.memory, chunk.known);
    if (shown) offer.key[offer.count - 1] = wire::kAsShown;
  }
  std::vector<int> fds;
  for (const UniqueFd& fd : owned) fds.push_back(fd.Get());
  Send(offer, fds);
}

void TestProgram::Show(std::uint32_t count, std::uint32_t round) {
  LineMessage shown = {.type = LineType::kShown};
  std::vector<UniqueFd> owned;
  for (auto& [name, chunk] : chunks_) {
    if (shown.count == count || chunk.out() || chunk.offered || !chunk.memory.whole() || chunk.shown == round) continue;
    chunk.shown = round;
    Name(shown, owned, name, chunk.memory, use_);
  }
  std::vector<int> fds;
  for (const UniqueFd& fd : owned) fds.push_back(fd.Get());
  Send(shown, fds);
}

void TestProgram::Want(std::uint32_t count, std::uint32_t room, std::uint32_t holes) {
  LineMessage want = {.type = LineType::kWant};
  std::vector<UniqueFd> owned;
  for (auto found = chunks_.rbegin(); found != chunks_.rend() && want.count < count; ++found) {
    Chunk& chunk = found->second;
    const std::uint32_t empty = wire::kUnitsPerChunk - wire::CountOf(chunk.known);
    const wire::Units units = empty <= holes ? wire::kAllUnits : chunk.known;
    if ((!chunk.host && !chunk.slot) || chunk.key == 0 || chunk.wanted || wire::CountOf(units) > room) continue;
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
  const bool away = message.type == LineType::kStoredAway, refuses = stored && !away && !imports;
  const bool fails = refuses || (stored ? freed_fails : taken_fails);
  for (std::uint32_t i = 0; i < message.count; ++i) {
    Chunk& chunk = chunks_.at(message.chunk[i]);
    (stored ? chunk.offered : chunk.wanted) = false;
    struct stat status = {};
    if (stored && !away && fstat(fds[i].Get(), &status) == 0) host_memories_.push_back(status.st_ino);
    if (fails) {
      if (!stored) LeaveOut(chunk);
      continue;
    }
    if (!chunk.file) Unmap(chunk);
    if (!stored) Map(chunk, std::exchange(chunk.coming, {}));
    if (stored && !away) Map(chunk, {wire::kAllUnits, {Import(driver_, fds[i].Get())}});
    chunk.host = stored && !away;
    chunk.file = chunk.slot = away;
    chunk.key = stored ? message.key[i] : 0;
    EXPECT_EQ(stored, chunk.key != 0);
  }
  LineMessage answer = message;
  answer.type = stored ? LineType::kFreed : LineType::kTaken;
  answer.error = refuses ? CUDA_ERROR_INVALID_DEVICE : fails ? CUDA_ERROR_OUT_OF_MEMORY : 0;
  Send(answer);
}

void TestProgram::Release(const LineMessage& message) {
  for (std::uint32_t i = 0; i < message.count; ++i) {
    Chunk& chunk = chunks_.at(message.chunk[i]);
    EXPECT_TRUE(chunk.host && !chunk.wanted && message.key[i] != 0);
    Unmap(chunk);
    chunk.host = false;
    chunk.file = true;
    chunk.slot = chunk.key == message.key[i];
    chunk.key = message.key[i];
  }
  LineMessage answer = message;
  answer.type = LineType::kReleased;
  Send(answer);
}

void TestProgram::Hold(const LineMessage& message, std::span<UniqueFd> fds) {
  const bool away = message.type == LineType::kReadAway;
  LineMessage answer = message;
  answer.type = LineType::kHeld;
  if (!away && !imports) {
    answer.count = 0;
    answer.error = CUDA_ERROR_INVALID_DEVICE;
  }
  for (std::uint32_t i = 0; i < answer.count; ++i) {
    Chunk& chunk = chunks_.at(message.chunk[i]);
    EXPECT_TRUE(chunk.file && message.key[i] != 0);
    if (!away) Map(chunk, {wire::kAllUnits, {Import(driver_, fds[i].Get())}});
    chunk.host = !away;
    chunk.file = chunk.slot = away;
    chunk.key = message.key[i];
  }
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
  if (chunks_.at(name).out()) Send(drop);
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

}  // namespace tessera::mover
