#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "sched/residency/host_work.h"
#include "sched/residency/residency_state.h"
#include "server/model/move_account.h"
#include "server/model/shared_page.h"
#include "server/record/wait_time.h"

namespace tessera::server {

// A process's connection to the mover of its GPU. Belongs to MoverLink.
struct MoverLine {
  std::uint64_t number = 0;  // the mover's name for the process; 0: it has no line
  UniqueFd end;              // the mover's end of the line, until there is a mover
  Nanos next_at = 0;         // before then the process gets no other line

  // It had one to a mover that has ended, and has not got another.
  bool Lost() const { return number == 0 && next_at != 0; }
};

// What is known of a suspended process's own file (wire::MoverType::kSave).
struct OwnFile {
  bool ordered = false;    // the mover is to write or to read it, and has not said that it is done
  bool in = false;         // all that the process had in host memory is in the file
  int error = 0;           // why the last such order failed, errno value; 0: it did not
  std::uint64_t left = 0;  // bytes that the order has still to move, at most; 0: the mover has not said
  // The order has ended.
  void End(bool writes, int why) { *this = {.ordered = false, .in = why == 0 ? writes : in, .error = why}; }
};

// The daemon's record of where the memory of one process on one GPU lies, and of what is being done about that. Bytes.
// Belongs to ResidencyServer, but for the room that a program says it has when it attaches. The program's page holds
// claims: the methods return as much of them as can be true.
struct Residence {
  explicit Residence(SharedPage& page);

  std::uint64_t Credit() const;         // of `room`: not in use
  std::uint64_t Pinned() const;         // of `room`: cannot be moved
  std::uint64_t Movable() const;        // of `room`: could be brought out
  std::uint64_t Taken() const;          // of `room`: what the process has on the GPU
  std::uint64_t Swapped() const;        // in host memory, or in the file
  std::uint64_t Stranded() const;       // of `Swapped`: stays there until it is freed, no mover has it
  std::uint64_t HotOut() const;         // of `Swapped`: it uses that more than memory that it has on the GPU
  sched::HostUse Use(bool runs) const;  // what it works on, if it runs
  std::uint64_t Evicting() const;       // what an operator wanted out and is still to go
  // The mover, or the line to it, is gone. Memory on its way in stayed where it was; its room was not used.
  void Abandon();
  // It gets another line: what the old one did without a word is found.
  void ChangeLine();
  // As MoveAccount's: the room follows.
  Moves NoteMoved(const Moves& of_room, const Moves& copied);

  sched::ProcessId id;                     // never used for another process
  SharedPage* page;                        // outlives the object
  std::uint64_t room = 0;                  // GPU memory that it may have, the credit in its page included
  std::uint64_t wanted = 0;                // room that it waits for
  Nanos wanted_at = 0;                     // when it said so last
  bool pins = false;                       // what it makes there cannot be moved
  Nanos granted_at = -sched::kTimeToTake;  // when it last got what it waited for, which it takes out of its credit
  std::uint64_t push = 0;                  // an operator wants so much of it out
  bool stopped = false;                    // it does not run, because of its memory
  bool thawed = false;                     // though stopped it is not frozen
  bool alone = false;                      // though stopped, its program's work on other GPUs goes on
  bool keeps_peers = false;                // though thawed it was away, and its program on other GPUs waits
  bool parked = false;                     // the program holds nothing of what is out, but the mover has it
  bool comes_back = false;                 // it was suspended, and what it has in host memory follows it
  bool comes_at_once = false;   // what it has out lies in the GPU's memory, and is to be its own before anything else
  bool may_be_in_file = false;  // the mover was told that it stands still, and may bring to the file what it has out
  MoveAccount moves;
  MoverLine line;
  OwnFile own_file;
  Nanos stuck_until = 0;        // the mover could do no more of it
  bool no_host_memory = false;  // its driver does not import this mover's: it runs with all of its memory on the GPU
  int settle_error = 0;         // why the mover could not settle it last, as it was logged; errno value
  int park_error = 0;   // why it could not let go of all that is out, errno value; 0: it could, or was not asked
  int evict_error = 0;  // why the last eviction brought out less than it should have, errno value; 0: it did not
  sched::HostWork host_work;
  bool stranded_told = false;  // an event told that some of its memory is stranded
  WaitTime waited;             // it had work, or wanted memory, and was kept from it by where memory lies
};

}  // namespace tessera::server
