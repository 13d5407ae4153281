// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<?x8xf32>, %i: !pebble.value<"tensor(int64)">, %j: !pebble.value<"tensor(int64)">, %v: tensor<?x1xf32>, %c: tensor<8xf32>, %k: tensor<8x4xf32>) {
  %s, %t, %w = pebble.edge_list of %x from %i to %j weights %v {pebble.dims = [["e"], ["e"], ["e"]]} : (tensor<?x8xf32>, !pebble.value<"tensor(int64)">, !pebble.value<"tensor(int64)">, tensor<?x1xf32>) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
  %e = pebble.sort_edges of %x, %s, %t, %w : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>) -> !pebble.edges
  %y = pebble.aggregate %x, %e bias %c activation <relu> : (tensor<?x8xf32>, !pebble.edges, tensor<8xf32>) -> tensor<?x8xf32>
  %z = pebble.aggregate %y, %e maximum : (tensor<?x8xf32>, !pebble.edges) -> tensor<?x8xf32>
  %l = pebble.linear %x, %k : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  %a = pebble.attend_edges %x, %l, %e bias %c heads 2 score <leaky_relu(0.2)> epsilon 1.0e-16 from_zero activation <relu> : (tensor<?x8xf32>, tensor<?x4xf32>, !pebble.edges, tensor<8xf32>) -> tensor<?x8xf32>
  func.return
}

// CHECK:      %s, %t, %w = pebble.edge_list of %x from %i to %j weights %v {pebble.dims = {{\[\["e"\], \["e"\], \["e"\]\]}}} :
// CHECK-NEXT: %e = pebble.sort_edges of %x, %s, %t, %w :
// CHECK-NEXT: %y = pebble.aggregate %x, %e bias %c activation <relu> :
// CHECK-NEXT: %z = pebble.aggregate %y, %e maximum :
// CHECK:      %a = pebble.attend_edges %x, %l, %e bias %c heads 2 score <leaky_relu(0.2)> epsilon 1.000000e-16 from_zero activation <relu> :

// GENERIC: "pebble.aggregate"(%y, %e) <{maximum}>
