// A mover for tests of the pager: it moves at once what it is told to, and complains of what the program must not say.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pager/line/line_agent.h"
#include "pager/testing/fake_driver.h"
#include "pager/testing/fake_room.h"

namespace tessera::pager {

// For one thread.
class FakeMover {
 public:
  FakeMover(FakeDriver& driver, FakeRoom& room, LineAgent& agent) : driver_(driver), room_(room), agent_(agent) {}
  ~FakeMover() { Forget(); }
  FakeMover(const FakeMover&) = delete;

  // Each takes one step of the conversation. Chunks that are under way since. `room`: units that may come in; `holes`:
  // of these, holes.
  std::uint32_t Ask(wire::LineType type, std::uint32_t count, std::uint32_t room = UINT32_MAX,
                    std::uint32_t holes = wire::kAnyHoles);
  // The oldest that are under way: the first `most` of them are copied, the others are refused. The program's word on
  // those that were.
  wire::LineMessage FinishOut(std::uint32_t most = wire::kMostChunks);
  wire::LineMessage FinishIn(std::uint32_t most = wire::kMostChunks);
  // The CUresult.
  std::int32_t Settle();

  // All of it at once. Chunks that moved.
  std::uint32_t Evict(std::uint32_t count, wire::LineType type = wire::LineType::kEvict);
  std::uint32_t Load(std::uint32_t count, std::uint32_t room = UINT32_MAX, std::uint32_t holes = wire::kAnyHoles);
  // Brings chunks with holes out, and back without them.
  std::uint32_t Squeeze(std::uint32_t count);

  // A stored chunk goes on to the file, or comes back from there to new host memory. False: the program would not.
  bool File(std::uint64_t chunk);
  bool ReadBack(std::uint64_t chunk);
  // A stored chunk stays where it is, without the program, or the program gets that memory again. False: it would not.
  bool Park(std::uint64_t chunk);
  bool Unpark(std::uint64_t chunk);
  // From now on what is stored is away at once, if `away`.
  void StoreAway(bool away) { away_ = away; }
  // A chunk in the file comes to a slot, and stays away. False: the program would not.
  bool ReadAway(std::uint64_t chunk);
  // Chunks that the program says are in host memory still.
  std::uint32_t Held() { return Say({.type = wire::LineType::kPark}, {}, wire::LineType::kParked).room; }

  // The line is gone, and another mover comes. The file stays, and so do the descriptors of host memory.
  void Restart();
  // Those do not stay, as when the daemon ends.
  void LoseSlots() { slots_.clear(); }
  void HearDropped();

  std::size_t Stored() const { return stored_.size(); }
  std::size_t Filed() const { return filed_.size(); }
  std::size_t Parked() const { return parked_.size(); }
  // GPU memory that the program made to come back: pieces, and chunks in several or without their holes.
  std::size_t CameIn() const { return came_in_; }
  std::size_t CameSparse() const { return came_sparse_; }
  bool OutUnderWay() const { return !offers_.empty(); }
  bool InUnderWay() const { return !wants_.empty(); }
  const std::vector<std::string>& Complaints() const { return complaints_; }

 private:
  struct Offered {
    std::vector<std::uint64_t> chunks;
    std::vector<FakeDriver::Words> words;
    std::vector<std::uint32_t> taken;  // units that their GPU memory takes
  };
  struct Piece {
    UniqueFd fd;
    std::uint64_t begin = 0, bytes = 0;  // where in its chunk
  };
  struct Wanted {
    std::vector<std::uint64_t> chunks;
    std::vector<wire::Units> units;
    std::vector<std::vector<Piece>> pieces;  // of the memory that they are copied to
    std::vector<std::uint32_t> taken;
  };
  std::vector<std::vector<Piece>> PiecesIn(LineAgent::Answer& answer);
  // Sends a message; the answer of the wanted type, if there is to be one.
  wire::LineMessage Say(const wire::LineMessage& message, std::vector<UniqueFd> fds, wire::LineType answer);
  void Hear(LineAgent::Answer& answer);
  UniqueFd Keep(std::uint64_t key, UniqueFd fd);
  void Forget();

  FakeDriver& driver_;
  FakeRoom& room_;
  LineAgent& agent_;
  std::map<std::uint64_t, Driver::Handle> stored_;   // its host memory
  std::map<std::uint64_t, std::uint64_t> keys_;      // of these, by chunk
  std::map<std::uint64_t, std::uint64_t> parked_;    // keys by chunk
  std::map<std::uint64_t, UniqueFd> slots_;          // what the daemon keeps of it, by key
  std::map<std::uint64_t, std::uint64_t> filed_;     // keys by chunk
  std::map<std::uint64_t, FakeDriver::Words> file_;  // by key
  std::uint64_t next_key_ = 1000;
  bool away_ = false;
  std::size_t came_in_ = 0, came_sparse_ = 0;
  std::vector<Offered> offers_;
  std::vector<Wanted> wants_;
  std::vector<std::string> complaints_;
};

}  // namespace tessera::pager
