// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: target [d2, _] copies an axis that input ?x4 does not have
  %y = pebble.reshape %x to <[d2, _]> : (tensor<?x4xf32>) -> tensor<?x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected x that fits target [d0, 3], got ?x4
  %y = pebble.reshape %x to <[d0, 3]> : (tensor<?x4xf32>) -> tensor<?x3xf32>
  func.return
}

// -----

func.func @main(%x: tensor<2x4xf32>) {
  // CHECK: expected x that fits target [3, _], got 2x4
  %y = pebble.reshape %x to <[3, _]> : (tensor<2x4xf32>) -> tensor<3x?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected result ?x2x2, got ?x4
  %y = pebble.reshape %x to <[d0, 2, 2]> : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected a permutation of axes 0 to 1, got [0, 2]
  %y = pebble.transpose %x axes [0, 2] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected result 4x?, got ?x4
  %y = pebble.transpose %x axes [1, 0] : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected one or more operands, got none
  %y = "pebble.concat"() <{axis = 0 : i64}> : () -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected axis 0 to 1, got 2
  %y = pebble.concat %x, %x axis 2 : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x8xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %z: tensor<4xf32>) {
  // CHECK: expected operands of rank 2, got 4
  %y = pebble.concat %x, %z axis 0 : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>, %z: tensor<?x3xf32>) {
  // CHECK: expected operands like ?x4 off axis 0, got ?x3
  %y = pebble.concat %x, %z axis 0 : (tensor<?x4xf32>, tensor<?x3xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected result ?x8, got ?x7
  %y = pebble.concat %x, %x axis 1 : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x7xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected one or more results, got none
  "pebble.split"(%x) <{axis = 1 : i64}> : (tensor<?x4xf32>) -> ()
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: a part of unknown size along axis 0
  %a, %b = pebble.split %x axis 0 : (tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected parts of ?x4, got ?x5
  %a, %b = pebble.split %x axis 1 : (tensor<?x4xf32>) -> (tensor<?x2xf32>, tensor<?x3xf32>)
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected axis 0 to 1, got 2
  %a = pebble.take %x axis 2 at 0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected place -4 to 3 of axis 1 of ?x4, got -5
  %a = pebble.take %x axis 1 at -5 : (tensor<?x4xf32>) -> tensor<?xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected result 4, got 5
  %a = pebble.take %x axis 0 at 0 : (tensor<?x4xf32>) -> tensor<5xf32>
  func.return
}
