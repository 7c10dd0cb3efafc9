"""HTTP endpoints for users and agents."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.api.errors import BODY, problems
from app.api.strict import Answer, InListing, StrictRoute, answer, etag
from app.auth.dependencies import get_caller
from app.core.schemas import Identifier, Page, Timestamp
from app.facts.endpoints import FactServiceDep
from app.facts.profile import USERS, Interaction
from app.memories.agents import AGENTS, Experience
from app.memories.endpoints import MemoryServiceDep
from app.memories.repository import MemoryRepository
from app.profiles import agents, users
from app.profiles.agents import AgentService, OwnerDirectory
from app.profiles.users import ProfileReader, UserService
from app.storage.repository import Repository
from app.writes.executor import InPrecondition, Writer


async def user_service(request: Request, facts: FactServiceDep, memories: MemoryServiceDep) -> UserService:
    resources, principal = get_caller(request)
    return UserService(
        Repository(resources.store, principal.scope, USERS),
        facts,
        memories,
        resources.clock,
    )


async def agent_service(request: Request) -> AgentService:
    resources, principal = get_caller(request)
    return AgentService(
        Repository(resources.store, principal.scope, AGENTS),
        ProfileReader(resources.store, principal.scope, resources.clock),
        MemoryRepository(resources.store, principal.scope),
        resources.clock,
    )


async def owner_directory(request: Request) -> OwnerDirectory:
    """Returns the lists of users and agents of the caller."""
    resources, principal = get_caller(request)
    return OwnerDirectory(resources.store, principal.scope, resources.collections, resources.clock)


Users = Annotated[UserService, Depends(user_service)]
Directory = Annotated[OwnerDirectory, Depends(owner_directory)]
Agents = Annotated[AgentService, Depends(agent_service)]


users_router = APIRouter(prefix="/v1/users", tags=["users"], route_class=StrictRoute)
agents_router = APIRouter(prefix="/v1/agents", tags=["agents"], route_class=StrictRoute)

UserIdPath = Annotated[Identifier, Path(examples=["ada"])]
AgentId = Annotated[Identifier, Path(examples=["support"])]
IssueId = Annotated[Identifier, Path(examples=["mem_01a2003d395076f9a13acea58faaf745"])]
NEW = problems(409, 412, *BODY)
CHANGE = problems(404, 409, 412, *BODY)


@users_router.get("", responses=problems())
async def list_users(owners: Directory, listing: InListing) -> Answer[Page[users.ListedUser]]:
    """List everyone of whom anything is stored, by user id. A memory, a task or an action suffices."""
    return answer(await owners.users(listing))


@users_router.get("/{user_id}", responses=problems(404))
async def get_user(user_id: UserIdPath, owners: Directory) -> Answer[users.ListedUser]:
    """Get a user of whom anything is stored, with the profile, which is empty if nobody has written one."""
    return answer(await owners.user(user_id))


@users_router.get("/{user_id}/profile", responses=problems(404))
async def get_profile(
    user_id: UserIdPath,
    users: Users,
    as_of: Annotated[
        Timestamp | None, Query(description="The fields that are facts as they were true at that time; default: now.")
    ] = None,
    known_at: Annotated[Timestamp | None, Query(description="As they were known then; default: now.")] = None,
) -> Answer[users.StoredProfile]:
    """Get what is known of a user for good. Name, age, home and occupation are facts about `@user`."""
    return answer(await users.profile(user_id, as_of, known_at))


@users_router.put("/{user_id}/profile", responses=NEW)
async def put_profile(
    user_id: UserIdPath, body: users.Profile, users: Users, write: Writer, precondition: InPrecondition
) -> Answer[users.StoredProfile]:
    """Replace a user's profile."""
    return await write(lambda: users.put_profile(user_id, body, precondition))


@users_router.patch("/{user_id}/profile", responses=NEW)
async def update_profile(
    user_id: UserIdPath, body: users.ProfilePatch, users: Users, write: Writer, precondition: InPrecondition
) -> Answer[users.StoredProfile]:
    """Add to a profile: lists grow, scalars are overwritten, what is not named stays."""
    return await write(lambda: users.patch_profile(user_id, body, precondition))


@users_router.post("/{user_id}/interactions", status_code=201, responses=NEW)
async def add_interaction(
    user_id: UserIdPath, body: users.InteractionIn, users: Users, write: Writer, precondition: InPrecondition
) -> Answer[Interaction]:
    """Note a conversation in a line; the last 50 are kept."""
    return await write(lambda: users.interact(user_id, body, precondition))


@users_router.get("/{user_id}/interactions", responses=problems(404))
async def list_interactions(user_id: UserIdPath, users: Users) -> Answer[users.Interactions]:
    """List the last 50 interactions of a user, newest first."""
    return answer(await users.interactions(user_id))


@users_router.post("/{user_id}/issues", status_code=201, responses=NEW)
async def add_issue(
    user_id: UserIdPath, body: users.IssueIn, users: Users, write: Writer, precondition: InPrecondition
) -> Answer[users.Issue]:
    """Note a problem that the user has. It is a memory: "the same problem as last month" finds it."""
    return await write(lambda: users.add_issue(user_id, body, precondition))


@users_router.get("/{user_id}/issues", responses=problems(404))
async def list_issues(user_id: UserIdPath, users: Users, listing: InListing) -> Answer[Page[users.Issue]]:
    """List the user's problems, newest first."""
    return answer(await users.issues(user_id, listing))


@users_router.patch("/{user_id}/issues/{issue_id}", responses=CHANGE)
async def update_issue(
    user_id: UserIdPath,
    issue_id: IssueId,
    body: users.IssuePatch,
    users: Users,
    write: Writer,
    precondition: InPrecondition,
) -> Answer[users.Issue]:
    """Set a problem's status."""
    return await write(lambda: users.set_issue(user_id, issue_id, body.status, precondition))


@users_router.post(
    "/{user_id}/solutions",
    status_code=201,
    responses={**NEW, 200: {"model": users.Solution, "description": "An equal one is there already."}},
)
async def add_solution(
    user_id: UserIdPath, body: users.SolutionIn, users: Users, write: Writer, precondition: InPrecondition
) -> Answer[users.Solution]:
    """Note what fixed a problem. It is a memory, too."""
    return await write(lambda: users.add_solution(user_id, body, precondition))


@users_router.get("/{user_id}/solutions", responses=problems(404))
async def list_solutions(user_id: UserIdPath, users: Users, listing: InListing) -> Answer[Page[users.Solution]]:
    """List what has helped this user, newest first."""
    return answer(await users.solutions(user_id, listing))


@agents_router.post("", status_code=201, responses=NEW)
async def create_agent(
    body: agents.AgentCreate, agents: Agents, write: Writer, precondition: InPrecondition
) -> Answer[agents.Agent]:
    """Register an agent. An agent that is not registered works with the defaults."""
    return await write(lambda: agents.create(body, precondition))


@agents_router.get("", responses=problems())
async def list_agents(owners: Directory, listing: InListing) -> Answer[Page[agents.ListedAgent]]:
    """List every agent that is registered or has a record, by agent id."""
    return answer(await owners.agents(listing))


@agents_router.get("/{agent_id}", responses=problems(404))
async def get_agent(agent_id: AgentId, agents: Agents) -> Answer[agents.Agent]:
    """Get an agent with its settings and experience."""
    agent = await agents.get(agent_id)
    return answer(agent, {"ETag": etag(agent)})


@agents_router.patch("/{agent_id}", responses=CHANGE)
async def update_agent(
    agent_id: AgentId, body: agents.AgentPatch, agents: Agents, write: Writer, precondition: InPrecondition
) -> Answer[agents.Agent]:
    """Change an agent; its memories fade by its own settings."""
    return await write(lambda: agents.patch(agent_id, body, precondition))


@agents_router.delete("/{agent_id}", status_code=204, response_class=Response, responses=problems(404, 412))
async def delete_agent(agent_id: AgentId, agents: Agents, write: Writer, precondition: InPrecondition) -> Response:
    """Delete an agent's settings and experience. Memories made under its id stay."""
    return await write(lambda: agents.delete(agent_id, precondition))


@agents_router.get("/{agent_id}/experience", responses=problems(404))
async def get_experience(agent_id: AgentId, agents: Agents) -> Answer[Experience]:
    """Get what the agent has learned from all its users."""
    experience, agent = await agents.experience(agent_id)
    return answer(experience, {"ETag": etag(agent)})


@agents_router.patch("/{agent_id}/experience", responses=CHANGE)
async def update_experience(
    agent_id: AgentId, body: agents.ExperiencePatch, agents: Agents, write: Writer, precondition: InPrecondition
) -> Answer[Experience]:
    """Add lessons; one that is known is seen once more."""
    return await write(lambda: agents.learn(agent_id, body, precondition))


@agents_router.post("/{agent_id}/experience/copy", responses=CHANGE)
async def copy_experience(
    agent_id: AgentId, body: agents.ExperienceCopy, agents: Agents, write: Writer, precondition: InPrecondition
) -> Answer[Experience]:
    """Copy what another agent has learned: lessons that this agent does not have, and paragraphs of its knowledge."""
    return await write(lambda: agents.copy_experience(agent_id, body.from_agent_id, precondition))
