// Follow, publish, feed and an error, with the client that openapi-generator made for Go.
package main

import (
	"context"
	"fmt"
	"os"

	tidemark "github.com/tidemark/tidemark-go"
)

const readerID, authorID = "1000000103", "1000000203"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	configuration := tidemark.NewConfiguration()
	configuration.Servers = tidemark.ServerConfigurations{{URL: os.Getenv("TIDEMARK_URL")}}
	client := tidemark.NewAPIClient(configuration)
	reader := context.WithValue(context.Background(), tidemark.ContextAccessToken, readerID)
	author := context.WithValue(context.Background(), tidemark.ContextAccessToken, authorID)

	if _, _, err := client.RelationsAPI.Follow(reader, authorID).Execute(); err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	body := tidemark.NewPublishPostRequest("Hello")
	body.Data = map[string]interface{}{"topic": "test"}
	post, _, err := client.PostsAPI.PublishPost(author).PublishPostRequest(*body).Execute()
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if post.Data["topic"] != "test" {
		return fmt.Errorf("data is lost: %v", post.Data)
	}
	var page *tidemark.FeedPage
	for page == nil || len(page.Items) == 0 || page.Items[0].Id != post.Id {
		if page, _, err = client.FeedAPI.ReadFeed(reader).Execute(); err != nil {
			return fmt.Errorf("feed: %w", err)
		}
	}
	fmt.Println("feed:", page.Items[0].Id, page.Items[0].Title, "unread_total:", page.UnreadTotal)
	mark := tidemark.MarkPostsAsMarkReadRequest(tidemark.NewMarkPosts([]string{post.Id}))
	if _, _, err := client.ReadStateAPI.MarkRead(reader).MarkReadRequest(mark).Execute(); err != nil {
		return fmt.Errorf("mark read: %w", err)
	}

	_, response, err := client.RelationsAPI.Follow(reader, readerID).Execute()
	failure, ok := err.(*tidemark.GenericOpenAPIError)
	if !ok {
		return fmt.Errorf("the follow of oneself: %v", err)
	}
	problem, ok := failure.Model().(tidemark.Problem)
	if !ok || response.StatusCode != 422 || problem.Type != "/problems/self-follow" {
		return fmt.Errorf("the follow of oneself: %v %+v", err, failure.Model())
	}
	fmt.Println("error:", problem.Status, problem.Type)
	return nil
}
