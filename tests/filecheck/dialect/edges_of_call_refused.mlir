// RUN: xdsl-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x8x2xf32>, %i: !pebble.value<"tensor(int64)">) {
  // CHECK: expected nodes of rank 2, got ?x8x2
  %s, %t, %w = pebble.edge_list of %x from %i to %i : (tensor<?x8x2xf32>, !pebble.value<"tensor(int64)">, !pebble.value<"tensor(int64)">) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x8xf32>, %i: !pebble.value<"tensor(int64)">) {
  // CHECK: expected result ?, got 5
  %s, %t, %w = pebble.edge_list of %x from %i to %i : (tensor<?x8xf32>, !pebble.value<"tensor(int64)">, !pebble.value<"tensor(int64)">) -> (tensor<5xi32>, tensor<?xi32>, tensor<?xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<4x8x1xf32>, %i: tensor<?xi32>, %w: tensor<?xf32>) {
  // CHECK: expected nodes of rank 2, got 4x8x1
  %e = pebble.sort_edges of %x, %i, %i, %w : (tensor<4x8x1xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>) -> !pebble.edges
  func.return
}

// -----

func.func @main(%x: tensor<4x8xf32>, %i: tensor<?xi32>, %w: tensor<7xf32>) {
  // CHECK: expected edges of one size and rank 1, got 7
  %e = pebble.sort_edges of %x, %i, %i, %w : (tensor<4x8xf32>, tensor<?xi32>, tensor<?xi32>, tensor<7xf32>) -> !pebble.edges
  func.return
}

// -----

func.func @main(%x: tensor<4x?xf32>, %e: !pebble.edges) {
  // CHECK: expected x with a known size of axis 1, got 4x?
  %y = pebble.aggregate %x, %e : (tensor<4x?xf32>, !pebble.edges) -> tensor<4x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4x8xf32>, %e: !pebble.edges, %c: tensor<4xf32>) {
  // CHECK: expected bias 8, got 4
  %y = pebble.aggregate %x, %e bias %c : (tensor<4x8xf32>, !pebble.edges, tensor<4xf32>) -> tensor<4x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4x8xf32>, %e: !pebble.edges) {
  // CHECK: expected result 4x8, got 4x9
  %y = pebble.aggregate %x, %e : (tensor<4x8xf32>, !pebble.edges) -> tensor<4x9xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4x8xf32>, %s: tensor<4x6xf32>, %e: !pebble.edges) {
  // CHECK: expected a divisor of 8 features, got 3 heads
  %y = pebble.attend_edges %x, %s, %e heads 3 : (tensor<4x8xf32>, tensor<4x6xf32>, !pebble.edges) -> tensor<4x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<4x8xf32>, %s: tensor<4x5xf32>, %e: !pebble.edges) {
  // CHECK: expected 4 scores of each node, got 5
  %y = pebble.attend_edges %x, %s, %e heads 2 : (tensor<4x8xf32>, tensor<4x5xf32>, !pebble.edges) -> tensor<4x8xf32>
  func.return
}

