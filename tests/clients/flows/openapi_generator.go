// The flow by what openapi-generator makes for Go. The test puts it beside the generated package.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	made "github.com/GIT_USER_ID/GIT_REPO_ID"
)

func must[T any, R any](value T, _ R, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	configuration := made.NewConfiguration()
	configuration.Servers = made.ServerConfigurations{{URL: os.Getenv("RECALLD_URL")}}
	api, ctx := made.NewAPIClient(configuration), context.Background()
	agent, user := "support", "openapi-generator-go"

	memory := made.NewMemoryCreate("Ada prefers tea")
	memory.SetAgentId(agent)
	memory.SetUserId(user)
	memory.SetMemoryType(made.MEMORY_TYPE_PREFERENCE)
	memory.SetMetadata(map[string]interface{}{"a.b": 1})
	kept := must(api.MemoriesAPI.CreateMemory(ctx).MemoryCreate(*memory).IdempotencyKey("go").Execute())
	metadata, _ := json.Marshal(kept.Metadata)
	fmt.Println("kept", kept.Content, kept.MemoryType, string(metadata))

	words := "I moved to Boston in May."
	message := made.NewMessageIn(made.MESSAGE_ROLE_USER)
	message.SetName("Ada")
	message.SetContent(made.MessageContent{String: &words})
	messages := made.NewMessagesAppend([]made.MessageIn{*message})
	messages.SetAgentId(agent)
	messages.SetUserId(user)
	said := must(api.SessionsAPI.AppendMessages(ctx, "by-go").MessagesAppend(*messages).Execute())
	fmt.Println("said", said.Items[0].Seq, *said.Items[0].Content.Get().String)

	search := made.NewSearchRequest("What does Ada drink?")
	search.SetAgentId(agent)
	search.SetUserId(user)
	found := must(api.MemoriesAPI.SearchMemories(ctx).SearchRequest(*search).Execute())
	fmt.Println("found", found.Items[0].Memory.GetContent(), found.Items[0].Score > 0)

	ask := made.NewContextRequest("Which city?", agent)
	ask.SetUserId(user)
	ask.SetTokenBudget(500)
	prompt := must(api.ContextAPI.AssembleContext(ctx).ContextRequest(*ask).Execute())
	fmt.Println("context", strings.Contains(prompt.Text, "Boston"), prompt.Tokens <= 500)

	_, response, err := api.MemoriesAPI.GetMemory(ctx, "mem_nothere").Execute()
	var missing *made.GenericOpenAPIError
	if !errors.As(err, &missing) {
		log.Fatal("it was found")
	}
	var problem made.Problem
	if err := json.Unmarshal(missing.Body(), &problem); err != nil {
		log.Fatal(err)
	}
	fmt.Println("missing", response.StatusCode, problem.Code)
}
