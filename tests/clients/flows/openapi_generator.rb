# The flow by what openapi-generator makes for Ruby.
require "openapi_client"
require "uri"

made = OpenapiClient
address = URI(ENV.fetch("RECALLD_URL"))
made.configure do |settings|
  settings.scheme = address.scheme
  settings.host = "#{address.host}:#{address.port}"
end
owner = { agent_id: "support", user_id: "openapi-generator-ruby" }
memories = made::MemoriesApi.new
body = made::MemoryCreate.new(**owner, content: "Ada prefers tea", memory_type: "preference", metadata: { "a.b" => 1 })
kept = memories.create_memory(body, idempotency_key: "ruby")
puts "kept #{kept.content} #{kept.memory_type} #{kept.metadata.to_json}"
message = made::MessageIn.new(role: "user", name: "Ada", content: "I moved to Boston in May.")
append = made::MessagesAppend.new(**owner, messages: [message])
said = made::SessionsApi.new.append_messages("by-openapi-generator-ruby", append)
puts "said #{said.items[0].seq} #{said.items[0].content}"
found = memories.search_memories(made::SearchRequest.new(**owner, query: "What does Ada drink?"))
puts "found #{found.items[0].memory.content} #{found.items[0].score.positive?}"
prompt = made::ContextApi.new.assemble_context(made::ContextRequest.new(**owner, query: "Which city?", token_budget: 500))
puts "context #{prompt.text.include?("Boston")} #{prompt.tokens <= 500}"
begin
  memories.get_memory("mem_nothere")
rescue made::ApiError => e
  puts "missing #{e.code} #{JSON.parse(e.response_body)["code"]}"
end
