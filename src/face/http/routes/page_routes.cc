#include "face/http/page_answers.h"
#include "face/http/routes/page_figures.h"
#include "face/http/routes/reply.h"
#include "face/http/routes/request_context.h"
#include "face/http/routes/routes.h"

namespace tessera::face {

using httplib::Request;
using httplib::Response;

void AddPageRoutes(httplib::Server& server, PageFigures& figures) {
  server.Get("/", AnswerWithPage);
  server.Get("/page/.*", AnswerWithPage);
  const auto reply = [](Response& response, const Result<SharedAnswers::Text>& answer) {
    if (!answer) return Refuse(response, answer.error());
    response.set_header("Cache-Control", "no-store");
    response.set_content(**answer, "application/json");
  };
  server.Get("/v1/overview",
             [&figures, reply](const Request&, Response& response) { reply(response, figures.Overview(*asker)); });
  server.Get("/v1/timeline",
             [&figures, reply](const Request&, Response& response) { reply(response, figures.Timeline(*asker)); });
}

}  // namespace tessera::face
