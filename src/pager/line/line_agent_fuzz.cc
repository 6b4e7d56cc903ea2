#include "pager/line/line_agent_fuzz.h"

#include <sys/mman.h>

#include <map>
#include <vector>

#include "pager/line/line_agent.h"
#include "pager/testing/fake_driver.h"
#include "pager/testing/fake_room.h"

namespace tessera::pager {
namespace {

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;

// Types of messages that a byte chooses from: all that there are, and some that are not.
constexpr std::uint16_t kTypes[] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 4, 5, 7, 8, 9, 10, 65, 9999, 11, 11, 12, 13, 13, 14, 4};

class Run {
 public:
  explicit Run(std::span<const std::uint8_t> script) : script_(script) {}

  std::string Do() {
    cuda::CUdeviceptr first = 0;
    heap_->Allocate(kChunkBytes, nullptr, &first);
    blocks_.push_back(base_ = first);
    while (at_ < script_.size() && wrong_.empty()) {
      Step();
      Check();
    }
    driver_.FailCall(0, 0);
    heap_->FreeAllOf(nullptr, [](std::uint64_t) { return std::uint64_t{0}; });
    agent_.Lost();
    heap_->Trim(kNever);
    if (wrong_.empty() && (driver_.Handles() != 0 || driver_.Mappings() != 0)) wrong_ = "memory is left";
    if (wrong_.empty() && room_.Taken() != 0) wrong_ = "room is left";
    return wrong_;
  }

 private:
  std::uint8_t Next() { return at_ < script_.size() ? script_[at_++] : 0; }

  void Step() {
    switch (Next() % 10) {
      case 0: {
        const std::uint8_t size = Next();
        cuda::CUdeviceptr address = 0;
        const std::uint64_t bytes = size < 32 ? 1 + std::uint64_t{size} * 1000 : std::uint64_t{size} << 20;
        if (heap_->Allocate(bytes, nullptr, &address) == cuda::CUDA_SUCCESS) blocks_.push_back(address);
        break;
      }
      case 1: {
        const std::size_t which = blocks_.empty() ? 0 : Next() % blocks_.size();
        if (which >= blocks_.size()) break;
        heap_->Free(blocks_[which]);
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(which));
        break;
      }
      case 2:
        driver_.FailCall(Next() % 8, Next() % 3);
        break;
      case 3:
        if (Next() % 4 == 0) agent_.Lost();
        agent_.TakeDropped(&answers_);
        break;
      case 4:
        agent_.Adopt(&answers_);
        for (const LineAgent::Answer& answer : answers_) {
          if (answer.message.type == LineType::kAdopt) named_ = answer.message;
        }
        break;
      case 5:
        heap_->Heat().Touch(base_ + (std::uint64_t{Next()} << 20), MonotonicNow() + Next() * UseHistory::kInterval);
        break;
      default:
        Say();
    }
    answers_.clear();
  }

  // Chunks are those of the last answer, in most cases, so that a mutation gets past the first check.
  void Say() {
    LineMessage message{.type = static_cast<LineType>(kTypes[Next() % std::size(kTypes)]),
                        .count = Next() % (wire::kMostChunks + 1)};
    const std::uint8_t how = Next();
    if (message.type == LineType::kLoad) {
      message.room = how & 128 ? how % 64 : UINT32_MAX;
      message.holes = how & 32 ? how % 64 : wire::kAnyHoles;
    }
    for (std::uint32_t i = 0; i < message.count; ++i) {
      const std::uint64_t offset = how % 8 == 7 ? std::uint64_t{Next()} << 17 : i * kChunkBytes;
      message.chunk[i] = how & 8 ? named_.chunk[i] : base_ + offset;
      message.key[i] = how & 64 ? 0 : 1 + i;
    }
    if ((how & 8) && (message.count > named_.count || how & 16)) message.count = named_.count;
    std::uint32_t descriptors = DescriptorsOf(message);
    if (how % 32 == 6) descriptors = (descriptors + 1) % 9;
    std::vector<UniqueFd> fds(descriptors);
    std::vector<Driver::Handle> given;
    for (UniqueFd& fd : fds) {
      if (how % 16 == 5) {
        fd.Reset(memfd_create("nothing", MFD_CLOEXEC));
      } else {
        given.push_back(driver_.MakeForMover(
            kChunkBytes, message.type == LineType::kStored || message.type == LineType::kRead, {}, &fd));
      }
    }
    agent_.On(message, fds, &answers_);
    for (const Driver::Handle handle : given) driver_.DropForMover(handle);
    for (const LineAgent::Answer& answer : answers_) {
      if (answer.message.type == LineType::kOffer || answer.message.type == LineType::kWant) {
        for (std::uint32_t n = 0; n < answer.message.count; ++n)
          taken_[answer.message.chunk[n]] = TakenBy(answer.message, n) * wire::kUnitBytes;
      }
      std::int64_t bytes = 0;
      for (std::uint32_t n = 0; n < answer.message.count; ++n)
        bytes += static_cast<std::int64_t>(taken_[answer.message.chunk[n]]);
      if (answer.fds.size() != DescriptorsOf(answer.message)) wrong_ = "other descriptors than the message says";
      if (answer.message.type == LineType::kFreed && answer.message.error == 0) room_.Moved(-bytes);
      if (answer.message.type == LineType::kTaken && answer.message.error == 0) room_.Moved(bytes);
      if (answer.message.type == LineType::kOffer || answer.message.type == LineType::kWant) named_ = answer.message;
      if (answer.message.type == LineType::kReleased || answer.message.type == LineType::kFreed)
        named_ = answer.message;
    }
  }

  void Check() {
    const HeapFigures figures = heap_->Figures();
    if (room_.Taken() != figures.resident) wrong_ = "it has other memory than room";
    if (room_.Told() != figures) wrong_ = "it told wrong figures";
    if (driver_.DeviceBytes() != figures.resident + figures.coming) wrong_ = "the driver has other memory";
    if (const auto complaints = driver_.Complaints(); !complaints.empty()) wrong_ = complaints.front();
  }

  std::span<const std::uint8_t> script_;
  std::size_t at_ = 0;
  FakeDriver driver_;
  FakeRoom room_;
  std::unique_ptr<Heap> heap_ = Heap::Make(driver_.Functions(), 0, 0, false, room_);
  LineAgent agent_{*heap_};
  std::vector<LineAgent::Answer> answers_;
  LineMessage named_{};
  std::map<std::uint64_t, std::uint64_t> taken_;  // GPU memory of chunks that were named, bytes
  cuda::CUdeviceptr base_ = 0;
  std::vector<cuda::CUdeviceptr> blocks_;
  std::string wrong_;
};

}  // namespace

std::string RunAgentScript(std::span<const std::uint8_t> script) { return Run(script).Do(); }

}  // namespace tessera::pager
