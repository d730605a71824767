import torch

from labelhedge.theory._minimize import minimize


def test_quadratics_of_every_shape():
    generator = torch.Generator().manual_seed(0)
    roots = torch.randn(50, 4, 4, generator=generator, dtype=torch.float64)
    matrices = roots @ roots.mT + 0.1 * torch.eye(4, dtype=torch.float64)
    goals = torch.randn(50, 4, generator=generator, dtype=torch.float64)

    def objective(x, rows):
        away = (x - goals[rows]).unsqueeze(-1)
        return (away.mT @ matrices[rows] @ away).flatten()

    point, value = minimize(objective, torch.zeros(50, 4, dtype=torch.float64), 100)
    assert value.max() < 1e-18
    assert (point - goals).abs().max() < 1e-7


def test_a_curved_valley():
    def rosenbrock(x, _):
        return (1 - x[:, 0]) ** 2 + 100 * (x[:, 1] - x[:, 0] ** 2) ** 2

    start = torch.tensor([[-1.2, 1.0], [0.0, 0.0], [3.0, -2.0]], dtype=torch.float64)
    assert minimize(rosenbrock, start, 300)[1].max() < 1e-15


def test_nothing_gets_worse_where_the_function_is_not_finite():
    def walls(x, _):
        return torch.where(x[:, 0] < 1, x[:, 0] ** 2, torch.nan)

    start = torch.tensor([[0.9], [-5.0]], dtype=torch.float64)
    _, value = minimize(walls, start, 50)
    assert value.max() < 1e-12
