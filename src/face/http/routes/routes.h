// The requests of the API and their handlers, by subject. Each function adds its own to a server that does not answer
// yet. A handler runs on the thread that answers the request, for the caller `asker` (request_context.h), which must be
// there; what it is given outlives the server.
#pragma once

#include "face/http/peer_stream.h"

namespace tessera::server {
class Control;
}

namespace tessera::face {

class EventStreams;
class PageFigures;

// The daemon: its health, metrics, GPUs, checks and configuration. `control` tells what it is to callers of no name.
void AddDaemonRoutes(httplib::Server& server, const server::Control& control);
void AddDrainRoutes(httplib::Server& server);
void AddEventRoutes(httplib::Server& server, EventStreams& streams);
// The page, and what it asks for every second.
void AddPageRoutes(httplib::Server& server, PageFigures& figures);
void AddProcessRoutes(httplib::Server& server);
void AddSpaceRoutes(httplib::Server& server);
void AddSuspensionRoutes(httplib::Server& server);
void AddTraceRoutes(httplib::Server& server);
void AddVGpuRoutes(httplib::Server& server);

}  // namespace tessera::face
